"""Decoder steps as CUDA graphs: one launch for hundreds of kernels, and nothing read back between.

A step is one copy to the device, one graph, one copy back, all asynchronous. Addresses never
change; what a step is about lies in its input and in the pools' tables.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine.cuda.batch import TOKEN_INTS, Inputs, Row, pack, view_inputs
from engine.cuda.launch import RESULT_FIELDS, Done, Launched
from engine.cuda.paged_attention import PagedAttention, Pools
from engine.cuda.sampler import Sampler
from engine.model.whisper import Whisper

Ints = npt.NDArray[np.int32]

MAX_IN_FLIGHT = 2  # steps: one runs while the host prepares the next


@dataclass(slots=True)
class Captured:
    """What belongs to one size."""

    size: int  # tokens
    packed: Tensor  # the input on the device
    inputs: Inputs
    attention: PagedAttention
    graph: torch.cuda.CUDAGraph | None = None
    queries: list[Tensor] | None = None
    logits: Tensor | None = None


class DecoderGraphs:
    """Runs decoder steps of any rows. Called by one thread."""

    def __init__(
        self,
        model: Whisper,
        pools: Pools,
        sampler: Sampler,
        sizes: Sequence[int],
        *,
        uses_graphs: bool = True,
    ) -> None:
        """Prepare; `capture` must follow.

        Args:
            sizes: numbers of tokens to capture, ascending.
            uses_graphs: False runs eagerly: slower, and bitwise equal.
        """
        self._model = model
        self._pools = pools
        self._sampler = sampler
        self._uses_graphs = uses_graphs
        device = pools.device
        is_cuda = device.type == "cuda"
        self._is_cuda = is_cuda
        # steps go before encodes: they are short, and a caller waits for each
        self.stream = torch.cuda.Stream(device, priority=-1) if is_cuda else None  # type: ignore[no-untyped-call]
        self._sizes = sizes
        self._captured = {size: self._allocate(size) for size in sizes}
        most = sizes[-1]

        def pinned(*shape: int) -> Tensor:
            return torch.zeros(*shape, dtype=torch.int32, pin_memory=is_cuda)

        # each step in flight has its own, or the host would overwrite what is being copied
        self._staged = [pinned(TOKEN_INTS * most) for _ in range(MAX_IN_FLIGHT)]
        self._tables = [pinned(*pools.tables.shape) for _ in range(MAX_IN_FLIGHT)]
        self._read = [pinned(most, RESULT_FIELDS) for _ in range(MAX_IN_FLIGHT)]
        self._next_buffer = 0
        # steps replayed of each size, and those run eagerly
        self.replays_by_size = dict.fromkeys(sizes, 0)
        self.num_eager = 0

    def _allocate(self, size: int) -> Captured:
        packed = torch.zeros(TOKEN_INTS * size, dtype=torch.int32, device=self._pools.device)
        inputs = view_inputs(packed)
        positions = self._sampler.positions[:size]
        attention = PagedAttention(
            self._pools, max_tokens=size, tiles=inputs.tiles, positions=positions
        )
        return Captured(size, packed, inputs, attention)

    def capture(self, report: Callable[[int], None] = lambda size: None) -> None:
        """Compile and capture every size, the largest first, whose memory the others share."""
        if not (self._is_cuda and self._uses_graphs):
            return
        assert self.stream is not None
        memory = torch.cuda.graph_pool_handle()
        with torch.inference_mode():
            for size in reversed(self._sizes):
                captured = self._captured[size]
                # kernels are compiled, and libraries initialised, outside the capture
                with torch.cuda.stream(self.stream):
                    self._run(captured)
                torch.cuda.synchronize()
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, pool=memory, stream=self.stream):
                    self._run(captured)
                captured.graph = graph
                report(size)

    @property
    def num_replays(self) -> int:
        return sum(self.replays_by_size.values())

    @property
    def max_tokens(self) -> int:
        """Tokens of the largest step."""
        return self._sizes[-1]

    def launch(self, rows: Sequence[Row], tables: Ints | None) -> Launched:
        """Start a step; the step before the last must have been read.

        Args:
            rows: of max_tokens together at most.
            tables: the pools' tables, if they have changed since the last step.
        """
        num_tokens = sum(len(row.tokens) for row in rows)
        size = self._sizes[bisect.bisect_left(self._sizes, num_tokens)]
        captured = self._captured[size]
        buffer = self._next_buffer
        self._next_buffer = (buffer + 1) % MAX_IN_FLIGHT
        staged = self._staged[buffer][: len(captured.packed)]
        firsts = pack(rows, size, staged.numpy())
        read = self._read[buffer][:size]
        with torch.inference_mode(), torch.cuda.stream(self.stream):
            if tables is not None:
                self._tables[buffer].numpy()[:] = tables
                self._pools.tables.copy_(self._tables[buffer], non_blocking=True)
            captured.packed.copy_(staged, non_blocking=True)
            if captured.graph is None:
                self.num_eager += 1
                self._run(captured)
            else:
                self.replays_by_size[size] += 1
                captured.graph.replay()
            read.copy_(self._sampler.results[:size], non_blocking=True)
            done = Done(self.stream)
        assert captured.queries is not None and captured.logits is not None
        return Launched(
            done,
            captured.graph is not None,
            firsts,
            read.numpy(),
            captured.queries,
            captured.logits,
        )

    def _run(self, captured: Captured) -> None:
        """Enqueue all kernels of a step: what a graph records."""
        sampler, inputs, size = self._sampler, captured.inputs, captured.size
        sampler.prepare(inputs)
        captured.queries = []
        x = self._model.decode(
            sampler.tokens[:size], sampler.positions[:size], captured.attention, captured.queries
        )
        captured.logits = self._model.compute_logits(x)
        sampler.sample(inputs, captured.logits)
        sampler.accept(inputs)
