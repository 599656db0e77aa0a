"""Encodes windows on a CPU in threads of their own, beside the decoder's steps.

An encode keeps the cores' arithmetic busy, a decoder step waits for memory: side by side, each
runs nearly as fast as alone. A window is encoded a piece (a layer) at a time. Between pieces a
final preempts partials, and both preempt a window of a recording, however long that is. The cores
are shared out again, too: two cores encode two windows in the time that one window takes on one
core, but they encode a single window only 1.4 times as fast.
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
from engine.batching.encoder_interface import Encoded
from engine.batching.scheduler import Admission, Encode, Step
from engine.batching.sequence import Phase, Sequence

# Encodes windows, and yields before each piece how many are left, this one included.
EncodeInPieces = Callable[[Rows[Sequence], Rows[Samples]], Iterator[int]]

# A step has some 200 operators of a few dozen microseconds. To share each among threads costs more
# than it saves: base 12 ms with two, 8 with one, large-v3-turbo 14 and 13 (benchmarks.steps).
DECODER_THREADS = 1
# pieces left from which the next windows are admitted, so that an encoder thread need not wait
ADMISSION_PIECES_LEFT = 2
MAX_PREEMPTIONS = 4  # awaited batches that may pass between two pieces of a recording's window


@dataclass(slots=True)
class EncodeJob:
    """Windows that are encoded together."""

    work: Encode
    pieces: Iterator[int]
    has_final: bool
    num_left: float = math.inf  # pieces; not known before it has begun
    is_taken: bool = False  # by a thread, for a piece
    duration_s: float = 0.0
    error: Exception | None = None  # why it failed


class EncoderThreads:
    """Encodes as many batches at once as there are threads, and one window of a recording.

    Implements `engine.batching.encoder_interface.Encoder`. `encode_piece` runs in the threads that
    `open` starts, or in a test's.
    """

    def __init__(self, encode_in_pieces: EncodeInPieces, num_threads: int = 1) -> None:
        """Prepare; `open` starts the threads.

        Args:
            num_threads: of an encode while nothing else is computed, and encodes at once.
        """
        self._encode_in_pieces = encode_in_pieces
        self._num_threads = num_threads
        self._awaited: list[EncodeJob] = []  # in the order in which they came
        self._background: EncodeJob | None = None
        self._num_preemptions = 0  # awaited batches since the last piece of the background
        self._done: deque[Encoded] = deque()
        self._changed = threading.Condition()  # guards all of the above
        self._on_news: Callable[[], None] = lambda: None
        self._failure: Exception | None = None  # that ended one of the threads
        self._is_closing = False
        self._threads = [
            threading.Thread(target=self._run, name=f"encoder-{n}", daemon=True)
            for n in range(num_threads)
        ]
        self._is_decoder_idle = True
        self._is_decoding_urgent = False  # an awaited final is being decoded

    @property
    def admission(self) -> Admission:
        with self._changed:
            num_busy = sum(job.num_left > ADMISSION_PIECES_LEFT for job in self._awaited)
            has_room = num_busy < self._num_threads and len(self._awaited) <= self._num_threads
            return Admission(
                partials=has_room,
                # they preempt partials, piece by piece
                finals=num_busy < 2 * self._num_threads,
                background=self._background is None,
            )

    def open(self, on_news: Callable[[], None]) -> None:
        self._on_news = on_news
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()
        for job in self._jobs:
            self._end(job)

    def make_way(self, step: Step | None) -> None:
        with self._changed:
            was_urgent = self._is_decoding_urgent
            self._is_decoding_urgent = step is not None and step.is_urgent
            self._is_decoder_idle = step is None
            if was_urgent and not self._is_decoding_urgent:
                self._changed.notify_all()  # threads that made way go on
        if step is not None:
            # each time: a thread that has just begun to compute takes what another one set last
            torch.set_num_threads(DECODER_THREADS)

    def start(self, work: Encode, audio: Rows[Samples]) -> None:
        has_final = any(sequence.is_final for sequence in work.sequences)
        job = EncodeJob(work, self._encode_in_pieces(work.sequences, audio), has_final)
        with self._changed:
            if work.is_background:
                self._background = job
            else:
                self._awaited.append(job)
            self._changed.notify()

    def take_done(self) -> list[Encoded]:
        if self._failure is not None:
            raise self._failure
        done = []
        while self._done:
            done.append(self._done.popleft())
        return done

    def encode_piece(self) -> bool:
        """Encode the next piece; return False if there is none."""
        with self._changed:
            job = self._next()
            if job is None:
                return False
            num_threads = self._take(job)
        is_over = all(sequence.phase is Phase.DONE for sequence in job.work.sequences)
        if not is_over:
            start = time.perf_counter()
            try:
                torch.set_num_threads(num_threads)
                job.num_left = next(job.pieces, 0)
                is_over = job.num_left == 0
            except Exception as error:  # the loop decides what it costs
                job.error, is_over = error, True
            job.duration_s += time.perf_counter() - start
        with self._changed:
            job.is_taken = False
            if is_over:
                self._end(job)
        if is_over or job.num_left == ADMISSION_PIECES_LEFT:
            self._on_news()
        return True

    def _run(self) -> None:
        try:
            while not self._is_closing:
                if not self.encode_piece():
                    with self._changed:
                        while self._next() is None and not self._is_closing:
                            self._changed.wait()
        except Exception as error:
            # what an encode raises is caught where it is run; the rest is wrong for all of them
            self._failure = error
            self._on_news()

    def _next(self) -> EncodeJob | None:
        """Return the job that goes next of those that no thread has taken, or None.

        Finals come first, then the oldest, then the background, unless that has waited long.
        """
        # beside a final that is decoded, partials leave it a core of its own
        is_full = (
            self._is_decoding_urgent and self._num_taken + DECODER_THREADS >= self._num_threads > 1
        )
        untaken = [j for j in self._awaited if not j.is_taken and (j.has_final or not is_full)]
        awaited = min(untaken, key=lambda job: not job.has_final, default=None)
        background = self._background
        if background is None or background.is_taken or is_full:
            return awaited
        if awaited is not None and self._num_preemptions < MAX_PREEMPTIONS:
            return awaited
        return background

    def _take(self, job: EncodeJob) -> int:
        """Let a thread take a job for a piece; return how many cores the piece may use."""
        job.is_taken = True
        if job is self._background:
            self._num_preemptions = 0
        decoder = 0 if self._is_decoder_idle else DECODER_THREADS
        return max(1, (self._num_threads - decoder) // self._num_taken)

    @property
    def _jobs(self) -> list[EncodeJob]:
        return self._awaited + ([] if self._background is None else [self._background])

    @property
    def _num_taken(self) -> int:
        return sum(job.is_taken for job in self._jobs)

    def _end(self, job: EncodeJob) -> None:
        if job is self._background:
            self._background = None
        else:
            self._awaited.remove(job)
            self._num_preemptions += 1
        self._done.append(Encoded(job.work, job.duration_s, error=job.error))
