"""The step loop around a runner without a model, stepped by the test or by its own threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from collections.abc import Sequence as Rows

import numpy as np
import torch

from engine.api import Hypothesis, Samples, StreamOptions, Window
from engine.batching.counters import Counters
from engine.batching.device_encoder import DeviceEncoder, InFlight
from engine.batching.encoder_threads import EncoderThreads
from engine.batching.loop import Loop
from engine.batching.page_pool import PagePool
from engine.batching.request import Request, Result, StreamState
from engine.batching.scheduler import Scheduler
from engine.batching.sequence import Phase, Sequence
from engine.decoding.language import StreamLanguage
from engine.decoding.prompt import PromptWriter
from engine.model.folded_tail import KeptPositions

NUM_PIECES = 6  # of an encode in the pool


class FakeRunner:
    """Decodes as many tokens as are asked for; fails on request."""

    def __init__(self) -> None:
        self.failing: set[int] = set()
        self.unreadable: set[int] = set()  # fail while they are encoded
        self.errors: dict[int, Exception] = {}  # what a step raises with these among others
        self.max_in_step: int | None = None  # sequences that memory is enough for in one step
        self.encoded: set[int] = set()
        self.held: set[int] = set()  # have decoded and are not forgotten
        self.num_pieces = 0
        self.num_stray_writes = 0  # into pages that were freed during the encode

    def encode(self, sequences: Rows[Sequence], audio: Rows[Samples]) -> InFlight | None:
        if any(sequence.id in self.unreadable for sequence in sequences):
            raise RuntimeError("an encode failed")
        self.encoded |= {sequence.id for sequence in sequences}
        return None

    def encode_in_pieces(self, sequences: Rows[Sequence], audio: Rows[Samples]) -> Iterator[int]:
        for num_left in range(NUM_PIECES - 1, 0, -1):
            self.num_pieces += 1
            if any(sequence.id in self.unreadable for sequence in sequences):
                raise RuntimeError("an encode failed")
            yield num_left
        self.num_stray_writes += not all(sequence.cross_pages for sequence in sequences)
        self.encode(sequences, audio)

    def step(self, sequences: Rows[Sequence]) -> None:
        if self.max_in_step is not None and len(sequences) > self.max_in_step:
            raise torch.OutOfMemoryError("CUDA out of memory")
        for sequence in sequences:
            assert sequence.phase is Phase.RUNNING
            assert sequence.self_pages and sequence.cross_pages
            assert sequence.id in self.encoded, "decoded before it was encoded"
            assert sequence.tokens or sequence.id not in self.held, "of an earlier text"
            self.held.add(sequence.id)
            if sequence.id in self.failing:
                raise RuntimeError("a kernel failed")
            if sequence.id in self.errors:
                raise self.errors[sequence.id]
            sequence.tokens.append(len(sequence.tokens))
            sequence.is_ended = len(sequence.tokens) == sequence.max_tokens

    def forget(self, sequence: Sequence) -> None:
        self.held.discard(sequence.id)


class LoopSetup:
    """A loop, its pools, and the results that it gave.

    Args:
        num_threads: of an encoder pool; 0 encodes in the loop's own thread.
        runner: in place of a FakeRunner.
    """

    def __init__(
        self,
        max_waiting: int = 50,
        num_threads: int = 0,
        runner: FakeRunner | None = None,
        tidy: Callable[[], None] = lambda: None,
    ) -> None:
        self.pools = (PagePool(20, 16), PagePool(60, 50))
        self.runner = runner or FakeRunner()
        self.scheduler = Scheduler(
            *self.pools,
            max_batch=8,
            max_encode_batch=4,
            max_encode_positions=1500,
            max_waiting=max_waiting,
            max_background_batch=1 if num_threads else None,
        )
        self.counters = Counters()
        self.pool = (
            EncoderThreads(self.runner.encode_in_pieces, num_threads) if num_threads else None
        )
        self.loop = Loop(
            self.scheduler,
            self.runner,
            self.pool or DeviceEncoder(self.runner.encode),
            self.finish,
            self.counters,
            tidy,
        )
        self.results: dict[int, Result] = {}
        self.unfinishable: set[int] = set()  # their texts cannot be written

    def finish(self, request: Request) -> bool:
        if request.sequence.id in self.unfinishable:
            raise KeyError("no such token")
        window, tokens = request.window, tuple(request.sequence.tokens)
        request.on_done(Hypothesis(window.start, window.end, (), "en", 1.0, tokens=tokens))
        return True

    def request(
        self,
        id: int,
        stream_id: int | None = None,
        num_tokens: int = 3,
        deadline: float = 0.0,
        is_final: bool = False,
    ) -> Request:
        def on_done(result: Result) -> None:
            assert id not in self.results, "answered twice"
            self.results[id] = result

        stream_id = id if stream_id is None else stream_id
        prompts = PromptWriter(tokenizer=None)  # type: ignore[arg-type]
        state = StreamState(stream_id, StreamOptions(), StreamLanguage("en"), prompts)
        sequence = Sequence(
            id, stream_id, is_final, deadline, KeptPositions(200), [0], num_tokens, 0
        )
        return Request(state, Window(0, np.zeros(16_000, np.float32)), sequence, on_done)

    def tokens_of(self, id: int) -> tuple[int, ...]:
        """Return the tokens of a window that was decoded."""
        result = self.results[id]
        assert isinstance(result, Hypothesis), result
        return result.tokens

    @property
    def is_empty(self) -> bool:
        """No page and no state of a sequence is held, and none was written after it was freed."""
        runner = self.runner
        return (
            not runner.held
            and not runner.num_stray_writes
            and all(pool.num_free == pool.num_pages for pool in self.pools)
        )

    def run(self, steps: int) -> None:
        """Step the loop and, in turn with it, the pool."""
        for _ in range(steps):
            self.loop.step()
            if self.pool is not None:
                self.pool.encode_piece()
