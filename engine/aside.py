"""Encodes windows on a CPU in a thread of its own, beside the decoder's passes.

An encode keeps the cores' arithmetic busy, a pass of the decoder waits for memory: side by side,
each runs nearly as fast as alone. A window is encoded a piece (a layer) at a time. Between pieces
a window that somebody awaits goes before one of a recording, however long that is.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Rows
from dataclasses import dataclass

import torch

from engine.api import Samples
from engine.counters import Counters
from engine.scheduler import Encode
from engine.sequence import Phase, Sequence

# Encodes windows, and yields before each piece how many are left, this one included. The last one
# only writes K/V into pages: of those windows that still hold theirs.
EncodeSlowly = Callable[[Rows[Sequence], Rows[Samples]], Iterator[int]]

# A pass has some 200 operators of a few dozen microseconds. To share each among threads costs more
# than it saves: base 12 ms with two, 8 with one, large-v3-turbo 14 and 13 (benchmarks.steps).
DECODER_THREADS = 1
NEARLY_DONE = 2  # pieces left from which the next windows may come: the encoder need not wait
MAX_PASSED = 4  # awaited batches that may pass between two pieces of a recording's window


@dataclass(slots=True)
class Job:
    """Windows that are encoded together."""

    work: Encode
    pieces: Iterator[int]
    num_left: float = math.inf  # pieces; not known before it has begun


@dataclass(frozen=True, slots=True)
class Encoded:
    """Windows whose encoding is over."""

    work: Encode
    error: Exception | None  # why it failed


class EncoderThread:
    """Encodes a batch that somebody awaits, and beside it a window of a recording.

    Work comes from the loop's thread and goes back to it; `turn` does one piece, in the thread that
    `start` starts, or in a test's.
    """

    def __init__(
        self, encode_slowly: EncodeSlowly, counters: Counters, *, num_threads: int = 1
    ) -> None:
        """Prepare.

        Args:
            num_threads: for an encode while nothing is decoded; one fewer beside the decoder.
        """
        self._encode_slowly = encode_slowly
        self._counters = counters
        self._num_threads = num_threads
        self._awaited: deque[Job] = deque()  # the first one is being encoded
        self._background: Job | None = None
        self._num_passed = 0  # awaited batches since the last piece of the background
        self._done: deque[Encoded] = deque()
        self._changed = threading.Condition()
        self._on_news: Callable[[], None] = lambda: None
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="encoder", daemon=True)
        # held while K/V goes into pages: whoever frees a sequence's pages holds it, too
        self.writing = threading.Lock()
        self.is_alone = True  # set by the loop: nothing is decoded

    @property
    def can_take(self) -> bool:
        """There is room for windows that somebody awaits."""
        with self._changed:
            return not self._awaited or (
                len(self._awaited) == 1 and self._awaited[0].num_left <= NEARLY_DONE
            )

    @property
    def can_take_background(self) -> bool:
        """There is room for a window that nobody awaits."""
        return self._background is None

    def start(self, on_news: Callable[[], None]) -> None:
        """Start the thread; on_news is called in it when work is done, or there is room again."""
        self._on_news = on_news
        self._thread.start()

    def close(self) -> None:
        """Stop the thread, whatever it is at."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()

    def put(self, work: Encode, audio: Rows[Samples], *, is_background: bool) -> None:
        """Take windows in, for which there is room."""
        job = Job(work, self._encode_slowly(work.sequences, audio))
        with self._changed:
            if is_background:
                self._background = job
            else:
                self._awaited.append(job)
            self._changed.notify()

    def take_done(self) -> list[Encoded]:
        """Give what is over since the last call."""
        done = []
        while self._done:
            done.append(self._done.popleft())
        return done

    def turn(self) -> bool:
        """Encode the next piece; tell whether there was one."""
        job = self._choose()
        if job is None:
            return False
        error: Exception | None = None
        is_over = all(sequence.phase is Phase.DONE for sequence in job.work.sequences)
        if not is_over:
            start = time.perf_counter()
            try:
                is_over = self._go_on(job)
            except Exception as caught:  # the loop's to judge: it knows who is to be told
                error, is_over = caught, True
            self._counters.encode_s += time.perf_counter() - start
        if is_over:
            self._finish(job, error)
        if is_over or job.num_left == NEARLY_DONE:
            self._on_news()
        return True

    def _run(self) -> None:
        while not self._is_closing:
            if not self.turn():
                with self._changed:
                    while not (self._awaited or self._background or self._is_closing):
                        self._changed.wait()

    def _choose(self) -> Job | None:
        with self._changed:
            background = self._background
            if background is not None and not (self._awaited and self._num_passed < MAX_PASSED):
                self._num_passed = 0
                return background
            return self._awaited[0] if self._awaited else None

    def _go_on(self, job: Job) -> bool:
        """Encode a piece of a job; tell whether it was the last one."""
        torch.set_num_threads(
            self._num_threads if self.is_alone else max(1, self._num_threads - DECODER_THREADS)
        )
        if job.num_left == 1:
            with self.writing:
                job.num_left = next(job.pieces, 0)
        else:
            job.num_left = next(job.pieces, 0)
        return job.num_left == 0

    def _finish(self, job: Job, error: Exception | None) -> None:
        with self._changed:
            if job is self._background:
                self._background = None
            else:
                self._awaited.popleft()
                self._num_passed += 1
            self._done.append(Encoded(job.work, error))
