"""Encodes windows on a CPU in threads of their own, beside the decoder's passes.

An encode keeps the cores' arithmetic busy, a pass of the decoder waits for memory: side by side,
each runs nearly as fast as alone. A window is encoded a piece (a layer) at a time. Between pieces
a final goes before a partial, and both before a window of a recording, however long that is; and
the cores are shared out anew: two cores encode two windows in the time that one takes alone on one
core, but one window only 1.4 times as fast.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Rows
from contextlib import nullcontext
from dataclasses import dataclass

import torch

from engine.api import Samples
from engine.batching.scheduler import Admission, Encode, Step
from engine.batching.sequence import Phase, Sequence

# Encodes windows, and yields before each piece how many are left, this one included. The last one
# only writes K/V into pages: of those windows that still hold theirs.
EncodeInPieces = Callable[[Rows[Sequence], Rows[Samples]], Iterator[int]]

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
    is_background: bool
    has_final: bool
    num_left: float = math.inf  # pieces; not known before it has begun
    is_taken: bool = False  # a thread is at it
    duration_s: float = 0.0
    error: Exception | None = None  # why it failed


class EncoderPool:
    """Encodes as many batches at once as there are threads, and one window of a recording.

    Work comes from the loop's thread and goes back to it; `turn` does one piece, in the threads
    that `start` starts, or in a test's.
    """

    def __init__(self, encode_in_pieces: EncodeInPieces, num_threads: int = 1) -> None:
        """Prepare.

        Args:
            num_threads: of an encode while nothing else is computed, and encodes at once.
        """
        self._encode_slowly = encode_in_pieces
        self._num_threads = num_threads
        self._awaited: list[Job] = []  # in the order in which they came
        self._background: Job | None = None
        self._num_passed = 0  # awaited batches since the last piece of the background
        self._done: deque[Job] = deque()
        self._changed = threading.Condition()  # guards all of the above
        self._on_news: Callable[[], None] = lambda: None
        self._is_closing = False
        self._threads = [
            threading.Thread(target=self._run, name=f"encoder-{n}", daemon=True)
            for n in range(num_threads)
        ]
        # held while K/V goes into pages: whoever frees a sequence's pages holds it, too
        self.writing = threading.Lock()
        self._is_alone = True  # nothing is decoded
        self._is_urgent = False  # a final that somebody awaits is

    @property
    def room(self) -> Admission:
        """Tell for which windows there is room."""
        with self._changed:
            num_busy = sum(job.num_left > NEARLY_DONE for job in self._awaited)
            has_room = num_busy < self._num_threads and len(self._awaited) <= self._num_threads
            return Admission(
                partials=has_room,
                # they go before partials, piece by piece
                finals=num_busy < 2 * self._num_threads,
                background=self._background is None,
            )

    def start(self, on_news: Callable[[], None]) -> None:
        """Start the threads; they call on_news when work is done, or there is room again."""
        self._on_news = on_news
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop the threads, whatever they are at."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def note_decoding(self, work: Step | None) -> None:
        """Take what the decoder does now."""
        with self._changed:
            was_urgent, self._is_urgent = self._is_urgent, work is not None and work.is_urgent
            self._is_alone = work is None
            if was_urgent and not self._is_urgent:
                self._changed.notify_all()  # those who made way go on

    def put(self, work: Encode, audio: Rows[Samples], *, is_background: bool) -> None:
        """Take windows in, for which there is room."""
        has_final = any(sequence.is_final for sequence in work.sequences)
        job = Job(work, self._encode_slowly(work.sequences, audio), is_background, has_final)
        with self._changed:
            if is_background:
                self._background = job
            else:
                self._awaited.append(job)
            self._changed.notify()

    def take_done(self) -> list[Job]:
        """Give what is over since the last call."""
        done = []
        while self._done:
            done.append(self._done.popleft())
        return done

    def turn(self) -> bool:
        """Encode the next piece; tell whether there was one."""
        with self._changed:
            job = self._choose()
            if job is None:
                return False
            num_threads = self._take(job)
        is_over = all(sequence.phase is Phase.DONE for sequence in job.work.sequences)
        if not is_over:
            start = time.perf_counter()
            try:
                is_over = self._go_on(job, num_threads)
            except Exception as error:  # the loop's to judge: it knows who is to be told
                job.error, is_over = error, True
            job.duration_s += time.perf_counter() - start
        with self._changed:
            job.is_taken = False
            if is_over:
                self._finish(job)
        if is_over or job.num_left == NEARLY_DONE:
            self._on_news()
        return True

    def _run(self) -> None:
        while not self._is_closing:
            if not self.turn():
                with self._changed:
                    while self._choose() is None and not self._is_closing:
                        self._changed.wait()

    def _choose(self) -> Job | None:
        """Choose what no thread is at: finals, then who came first, then the background.

        Unless that has waited long.
        """
        # beside a final that is decoded, partials leave it a core of its own
        is_full = self._is_urgent and self._num_taken + DECODER_THREADS >= self._num_threads > 1
        untaken = [j for j in self._awaited if not j.is_taken and (j.has_final or not is_full)]
        awaited = min(untaken, key=lambda job: not job.has_final, default=None)
        background = self._background
        if background is None or background.is_taken or is_full:
            return awaited
        if awaited is not None and self._num_passed < MAX_PASSED:
            return awaited
        return background

    def _take(self, job: Job) -> int:
        """Let a thread be at a job; give how many threads its piece may have."""
        job.is_taken = True
        if job.is_background:
            self._num_passed = 0
        decoder = 0 if self._is_alone else DECODER_THREADS
        return max(1, (self._num_threads - decoder) // self._num_taken)

    @property
    def _num_taken(self) -> int:
        jobs = self._awaited if self._background is None else [*self._awaited, self._background]
        return sum(job.is_taken for job in jobs)

    def _go_on(self, job: Job, num_threads: int) -> bool:
        """Encode a piece of a job; tell whether it was the last one."""
        torch.set_num_threads(num_threads)
        with self.writing if job.num_left == 1 else nullcontext():
            job.num_left = next(job.pieces, 0)
        return job.num_left == 0

    def _finish(self, job: Job) -> None:
        if job.is_background:
            self._background = None
        else:
            self._awaited.remove(job)
            self._num_passed += 1
        self._done.append(job)
