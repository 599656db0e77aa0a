"""The step loop: one thread that takes requests in, runs the model, and hands texts out.

Where an encode would hold up those who decode, other threads do it (`aside.py`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from collections.abc import Sequence as Rows
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import torch

from engine.api import EngineBusy, EngineError, Samples, StreamLost
from engine.batching.counters import Counters
from engine.batching.encoder_pool import DECODER_THREADS, EncoderPool
from engine.batching.request import Request
from engine.batching.scheduler import ADMIT_ALL, ADMIT_NONE, Encode, Scheduler, Step
from engine.batching.sequence import Phase, Sequence

logger = logging.getLogger(__name__)

IDLE_S = 0.5  # without work before memory is given back
TIDY_S = 20.0  # between two times that it is, work or not: it holds up all for some 50 ms


class ModelRunner(Protocol):
    """What the loop needs of a runner; tests run the loop without a model."""

    def encode(self, sequences: Rows[Sequence], audio: Rows[Samples]) -> None: ...

    def step(self, sequences: Rows[Sequence]) -> None: ...

    def forget(self, sequence: Sequence) -> None: ...


class Loop:
    """Owns the scheduler and the runner. `submit`, `abort` and `close` may come from any thread."""

    def __init__(
        self,
        scheduler: Scheduler,
        runner: ModelRunner,
        settle: Callable[[Request], bool],
        counters: Counters,
        can_encode: Callable[[], bool] = lambda: True,
        tidy: Callable[[], None] = lambda: None,
        aside: EncoderPool | None = None,
    ) -> None:
        """Prepare the loop; `start` starts its thread.

        Args:
            settle: called after each step for a sequence that stopped or that heard its language;
                True ends the request, which has been answered; False lets it decode on.
            can_encode: False while the runner still encodes.
            tidy: called now and then, best when there is nothing to do.
            aside: encodes beside the loop; None where the runner's own `encode` holds up nobody.
        """
        self._scheduler = scheduler
        self._runner = runner
        self._settle = settle
        self._counters = counters
        self._can_encode = can_encode
        self._tidy = tidy
        self._aside = aside
        self._tidied_at = time.monotonic()
        self._has_worked = False  # since then
        self._inbox: deque[tuple[Request, bool]] = deque()  # True: new, False: abort
        self._requests: dict[int, Request] = {}  # by sequence id, from submit to its outcome
        self._wake = threading.Condition()
        self._has_news = False  # something was encoded aside, or can be
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        if self._aside is not None:
            self._aside.start(self._note_news)
        self._thread.start()

    def submit(self, request: Request) -> None:
        """Let a request join; its on_done is called once, unless it is aborted."""
        self._post(request, True)

    def abort(self, request: Request) -> None:
        """Take a request out, whatever its state; nothing if it is answered already."""
        self._post(request, False)

    def close(self) -> None:
        """Stop the thread, and answer all that is left with StreamLost."""
        with self._wake:
            self._is_closing = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join()
        if self._aside is not None:
            self._aside.close()

    def _note_news(self) -> None:
        with self._wake:
            self._has_news = True
            self._wake.notify()

    def _post(self, request: Request, is_new: bool) -> None:
        with self._wake:
            if self._is_closing and is_new:
                raise StreamLost("the engine is closing")
            self._inbox.append((request, is_new))
            self._wake.notify()

    def _run(self) -> None:
        has_more = False  # work that needs no news
        while True:
            is_idle = False
            with self._wake:
                while not (
                    self._inbox or self._is_closing or self._has_news or has_more or is_idle
                ):
                    is_idle = not self._wake.wait(self._until_tidy())
                if self._is_closing:
                    break
                self._has_news = False
            if is_idle or (self._has_worked and time.monotonic() >= self._tidied_at + TIDY_S):
                self._tidy()
                self._tidied_at, self._has_worked = time.monotonic(), False
            has_worked = self.turn()
            self._has_worked |= has_worked
            has_more = bool(self._requests) and (has_worked or self._aside is None)
        for request in (*self._requests.values(), *(r for r, is_new in self._inbox if is_new)):
            self._answer(request, StreamLost("the engine was closed"))

    def _until_tidy(self) -> float | None:
        """Give the seconds without work until memory is given back; None: there is none to give."""
        if not self._has_worked:
            return None
        return max(IDLE_S, self._tidied_at + TIDY_S - time.monotonic())

    def turn(self) -> bool:
        """Take in what has arrived, then run one encode or one step; tell whether there was one."""
        while self._inbox:
            request, is_new = self._inbox.popleft()
            if is_new:
                self._take_in(request)
            elif request.sequence.id in self._requests:
                self._drop(request)
        if self._aside is not None:
            return self._turn_beside(self._aside)
        work = self._scheduler.next(ADMIT_ALL if self._can_encode() else ADMIT_NONE)
        if work is not None:
            duration_s = self._attempt(work, lambda: self._carry_out(work))
            self._scheduler.ran(work, duration_s)
        return work is not None

    def _turn_beside(self, aside: EncoderPool) -> bool:
        for job in aside.take_done():
            self._counters.encode_s += job.duration_s
            if job.error is not None:
                self._fail(job.work, job.error)
            self._scheduler.end_encoding(job.work)
        work = self._scheduler.next(aside.room)
        if isinstance(work, Encode):
            is_background = self._scheduler.begin_encoding(work)
            self._counters.num_encodes += 1
            self._counters.num_encoded += len(work.sequences)
            aside.put(work, self._audio(work), is_background=is_background)
            return True
        aside.note_decoding(work)
        if work is not None:
            # each time: a thread that has just begun to compute takes what another one set last
            torch.set_num_threads(DECODER_THREADS)
            self._attempt(work, lambda: self._carry_out(work))
        return work is not None

    def _attempt(self, work: Encode | Step, run: Callable[[], None]) -> float:
        """Run a piece of work; whatever it raises costs its windows, and nobody else's.

        Returns:
            Seconds that it took.
        """
        start = time.perf_counter()
        try:
            run()
        except Exception as error:
            # the edge of the engine: a bug costs the requests that met it, never the service
            self._fail(work, error)
        duration_s = time.perf_counter() - start
        if isinstance(work, Encode):
            self._counters.encode_s += duration_s
        else:
            self._counters.decode_s += duration_s
        return duration_s

    def _fail(self, work: Encode | Step, error: Exception) -> None:
        """Tell those whose work failed."""
        self._counters.num_failures += 1
        if isinstance(error, torch.OutOfMemoryError):
            logger.warning("out of memory with %d windows at once", len(work.sequences))
            self._scheduler.reduce_batch(work)
            message = "the engine was out of memory"
        else:
            logger.error("a step failed", exc_info=error)
            message = "the engine failed"
        for sequence in work.sequences:
            if sequence.id in self._requests:
                self._answer(self._requests[sequence.id], StreamLost(message))

    def _audio(self, work: Encode) -> list[Samples]:
        return [self._requests[sequence.id].window.audio for sequence in work.sequences]

    def _take_in(self, request: Request) -> None:
        sequence = request.sequence
        try:
            with self._pages_unwritten():
                replaced = self._scheduler.add(sequence)
        except EngineBusy as error:
            request.on_done(error)
            return
        self._requests[sequence.id] = request
        if replaced is not None:
            older = self._requests[replaced.id]
            self._answer(older, EngineBusy("a newer window of the stream took its place"))

    def _carry_out(self, work: Encode | Step) -> None:
        if isinstance(work, Encode):
            self._runner.encode(work.sequences, self._audio(work))
            return
        self._runner.step(work.sequences)
        for sequence in work.sequences:
            # a runner may answer one step late
            has_heard = sequence.needs_language and sequence.language_probabilities is not None
            if sequence.is_stopped or has_heard:
                request = self._requests[sequence.id]
                if self._settle(request):
                    self._drop(request)

    def _answer(self, request: Request, error: EngineError) -> None:
        self._drop(request)
        request.on_done(error)

    def _drop(self, request: Request) -> None:
        sequence = request.sequence
        self._requests.pop(sequence.id, None)
        if sequence.phase is not Phase.DONE:
            with self._pages_unwritten():
                self._scheduler.release(sequence)
        self._runner.forget(sequence)

    def _pages_unwritten(self) -> AbstractContextManager[object]:
        """Keep the encoder from writing into pages, since some are to be freed."""
        return nullcontext() if self._aside is None else self._aside.writing
