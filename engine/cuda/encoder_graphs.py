"""Encoding windows on a stream of its own, beside the decoder's steps.

From the audio to K/V in the cross pool without a wait: audio goes through pinned memory, the
layers are graphs in buckets of positions, and an event shows when a window can be decoded.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from engine.api import MAX_WINDOW, Samples
from engine.cuda.kernels.encoder import BLOCK_FIELDS, NARROW_QUERIES, WIDE_QUERIES
from engine.cuda.launch import Done
from engine.cuda.paged_attention import (
    PagedAttention,
    Pools,
    find_slots,
    lay_blocks,
    log2_weight,
)
from engine.model.folded_tail import KeptPositions
from engine.model.mel import LogMel
from engine.model.whisper import Whisper


@dataclass(slots=True)
class Stage:
    """Pinned memory for one call, and when the device has taken what is in it."""

    audio: Tensor
    blocks: Tensor
    places: Tensor
    taken: Done | None = None


@dataclass(slots=True)
class Captured:
    """A bucket of positions."""

    x: Tensor  # (N, C), the encoder's input
    blocks: Tensor  # (blocks, BLOCK_FIELDS) int32
    places: Tensor  # (N,) int64, in the cross pool; -1 for unused positions
    attention: PagedAttention
    graph: torch.cuda.CUDAGraph | None = None


class EncoderGraphs:
    """Encodes batches of windows. Called by one thread."""

    def __init__(
        self,
        model: Whisper,
        pools: Pools,
        *,
        max_windows: int,
        max_positions: int,
        fold: int | None,
        uses_graphs: bool = True,
    ) -> None:
        """Prepare; `capture` must follow.

        Args:
            max_windows: in one call.
            max_positions: in one call.
            fold: the weight of a folded position, the same for all windows; None for no folding.
        """
        device, config = pools.device, pools.config
        self._model = model
        self._pools = pools
        self._max_windows = max_windows
        self._uses_graphs = uses_graphs
        self._log_weight = log2_weight([KeptPositions(1, 1, fold)]) if fold else 0.0
        self._log_mel = LogMel(config.num_mels, device)
        self._is_cuda = device.type == "cuda"
        self.stream = torch.cuda.Stream(device) if self._is_cuda else None  # type: ignore[no-untyped-call]
        self._sizes = list_sizes(max(max_positions, config.max_source_positions))
        # without folding, every window has 30 s
        self._queries = NARROW_QUERIES if fold else WIDE_QUERIES
        self._num_blocks = {size: size // self._queries.block + max_windows for size in self._sizes}
        self._dtype = pools.cross_kv.dtype
        self._captured: dict[int, Captured] = {}
        largest = self._sizes[-1]

        def pinned(*shape: int, dtype: torch.dtype) -> Tensor:
            return torch.zeros(*shape, dtype=dtype, pin_memory=self._is_cuda)

        self._stages = [
            Stage(
                pinned(max_windows * MAX_WINDOW, dtype=torch.float32),
                pinned(self._num_blocks[largest], BLOCK_FIELDS, dtype=torch.int32),
                pinned(largest, dtype=torch.int64),
            )
            for _ in range(2)
        ]
        # one for all buckets: a call begins when the one before has ended
        self._x = torch.zeros(largest, config.d_model, dtype=self._dtype, device=device)
        self._next_stage = 0
        self.num_replays = 0
        self.num_eager = 0

    def capture(self, report: Callable[[int], None] = lambda size: None) -> None:
        """Compile and capture every size, the largest first, whose memory the others share."""
        device = self._pools.device
        memory = torch.cuda.graph_pool_handle() if self._is_cuda else None
        for size in reversed(self._sizes):
            captured = Captured(
                self._x[:size],
                torch.zeros(self._num_blocks[size], BLOCK_FIELDS, dtype=torch.int32, device=device),
                torch.full((size,), -1, dtype=torch.int64, device=device),
                PagedAttention(self._pools, max_tokens=1),
            )
            captured.attention.use_blocks(captured.blocks, self._queries, self._log_weight)
            self._captured[size] = captured
            if not (self._is_cuda and self._uses_graphs):
                continue
            # the longest window there is, or no kernel would be compiled for it
            length = min(size, self._pools.config.max_source_positions)
            laid = lay_blocks([KeptPositions(length)], self._queries)
            captured.blocks[: len(laid)] = torch.from_numpy(laid).to(device)
            with torch.inference_mode():
                with torch.cuda.stream(self.stream):
                    self._run(captured)
                torch.cuda.synchronize()
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, pool=memory, stream=self.stream):
                    self._run(captured)
            captured.graph = graph
            report(size)

    def encode(
        self,
        audio: Sequence[Samples],
        kept_positions: Sequence[KeptPositions],
        pages: Sequence[tuple[int, ...]],
        after: Done | None,
    ) -> Done:
        """Start to encode windows into their pages of the cross pool.

        Args:
            after: when the last step that may read those pages ends.
        """
        assert 0 < len(audio) <= self._max_windows, len(audio)
        N = sum(kept.num_positions for kept in kept_positions)
        size = self._sizes[bisect.bisect_left(self._sizes, N)]
        captured = self._captured[size]
        stage = self._stages[self._next_stage]
        self._next_stage = 1 - self._next_stage
        if stage.taken is not None:
            stage.taken.wait()
        with torch.inference_mode(), torch.cuda.stream(self.stream):
            windows = self._copy_audio(stage, audio)
            x = self._model.embed_audio(self._log_mel(windows), kept_positions)
            captured.x[:N] = x
            captured.x[N:] = 0  # finite, though its results are never read
            self._copy_plan(stage, captured, kept_positions, pages)
            stage.taken = Done(self.stream)
            if after is not None:
                after.hold(self.stream)
            if captured.graph is None:
                self.num_eager += 1
                self._run(captured)
            else:
                self.num_replays += 1
                captured.graph.replay()
            return Done(self.stream)

    def _copy_audio(self, stage: Stage, audio: Sequence[Samples]) -> list[Tensor]:
        lengths = [len(samples) for samples in audio]
        total = sum(lengths)
        np.concatenate(audio, out=stage.audio[:total].numpy())
        packed = stage.audio[:total].to(self._pools.device, non_blocking=True)
        return list(packed.split(lengths))  # type: ignore[no-untyped-call]

    def _copy_plan(
        self,
        stage: Stage,
        captured: Captured,
        kept_positions: Sequence[KeptPositions],
        pages: Sequence[tuple[int, ...]],
    ) -> None:
        blocks = stage.blocks[: len(captured.blocks)]
        laid = lay_blocks(kept_positions, self._queries)
        blocks.zero_()
        blocks.numpy()[: len(laid)] = laid
        captured.blocks.copy_(blocks, non_blocking=True)
        places = stage.places[: len(captured.places)]
        places.fill_(-1)
        lengths = [kept.num_positions for kept in kept_positions]
        found = find_slots(pages, lengths, self._pools.cross_page_size)
        places.numpy()[: len(found)] = found
        captured.places.copy_(places, non_blocking=True)

    def _run(self, captured: Captured) -> None:
        """Enqueue what a graph records: all layers, the projection to K/V, the pool."""
        # encode may overwrite its input, which the next call writes again
        x = self._model.encode(captured.x, captured.attention)
        captured.attention.scatter_cross(captured.places, self._model.project_cross(x))


def list_sizes(most: int) -> list[int]:
    """List the numbers of positions to capture: an eighth apart, so that little is padding."""
    sizes = [128]
    while sizes[-1] < most:
        step = max(64, (1 << sizes[-1].bit_length() - 1) // 8)
        sizes.append(sizes[-1] + step)
    return sizes
