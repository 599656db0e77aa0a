"""The step loop: one thread that takes requests in, runs the model, and hands texts out."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Rows
from dataclasses import dataclass
from typing import Protocol

import torch

from engine.api import EngineBusy, EngineError, Samples, StreamLost
from engine.counters import Counters
from engine.request import Request
from engine.scheduler import Encode, Scheduler, Step
from engine.sequence import Phase, Sequence

logger = logging.getLogger(__name__)

EncodeSlowly = Callable[[Rows[Sequence], Rows[Samples]], Iterator[None]]

MAX_PASSED = 20  # turns that others may have between two pieces of a window in the background
IDLE_S = 0.5  # without work before memory is given back
TIDY_S = 60.0  # between two times that it is: what is given back is asked for again


class Runs(Protocol):
    """What the loop needs of a runner; tests run the loop without a model."""

    def encode(self, sequences: Rows[Sequence], audio: Rows[Samples]) -> None: ...

    def step(self, sequences: Rows[Sequence]) -> None: ...

    def forget(self, sequence: Sequence) -> None: ...


@dataclass(frozen=True, slots=True)
class Background:
    """Windows that nobody awaits, encoded a piece at a time."""

    work: Encode
    pieces: Iterator[None]


class Loop:
    """Owns the scheduler and the runner. `submit`, `abort` and `close` may come from any thread."""

    def __init__(
        self,
        scheduler: Scheduler,
        runner: Runs,
        settle: Callable[[Request], bool],
        counters: Counters,
        can_encode: Callable[[], bool] = lambda: True,
        tidy: Callable[[], None] = lambda: None,
        encode_slowly: EncodeSlowly | None = None,
    ) -> None:
        """Prepare the loop; `start` starts its thread.

        Args:
            settle: called after each step for a sequence that stopped or that heard its language;
                True ends the request, which has been answered; False lets it decode on.
            can_encode: False while the runner still encodes.
            tidy: called now and then when there is nothing to do.
            encode_slowly: encodes a piece at a time, so that a long window that nobody awaits does
                not hold up those who speak; None where an encode holds up nobody.
        """
        self._scheduler = scheduler
        self._runner = runner
        self._settle = settle
        self._counters = counters
        self._can_encode = can_encode
        self._tidy = tidy
        self._encode_slowly = encode_slowly
        self._background: Background | None = None
        self._num_passed = 0  # turns that went to others since its last piece
        self._tidied_at = -math.inf
        self._has_worked = False  # since then
        self._inbox: deque[tuple[Request, bool]] = deque()  # True: new, False: abort
        self._requests: dict[int, Request] = {}  # by sequence id, from submit to its outcome
        self._wake = threading.Condition()
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
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

    def _post(self, request: Request, is_new: bool) -> None:
        with self._wake:
            if self._is_closing and is_new:
                raise StreamLost("the engine is closing")
            self._inbox.append((request, is_new))
            self._wake.notify()

    def _run(self) -> None:
        while True:
            with self._wake:
                while not (self._inbox or self._is_closing or self._requests):
                    if not self._wake.wait(self._until_tidy()):
                        break
                if self._is_closing:
                    break
                is_idle = not (self._inbox or self._requests)
            if is_idle:
                self._tidy()
                self._tidied_at, self._has_worked = time.monotonic(), False
            else:
                self._has_worked = True
                self.turn()
        for request in (*self._requests.values(), *(r for r, is_new in self._inbox if is_new)):
            self._answer(request, StreamLost("the engine was closed"))

    def _until_tidy(self) -> float | None:
        """Give the seconds without work until memory is given back; None: there is none to give."""
        if not self._has_worked:
            return None
        return max(IDLE_S, self._tidied_at + TIDY_S - time.monotonic())

    def turn(self) -> None:
        """Take in what has arrived, then run one encode or one step."""
        while self._inbox:
            request, is_new = self._inbox.popleft()
            if is_new:
                self._take_in(request)
            elif request.sequence.id in self._requests:
                self._drop(request)
        background = self._background
        must_wait = self._scheduler.has_awaited and self._num_passed < MAX_PASSED
        if background is not None and not must_wait:
            self._num_passed = 0
            self._attempt(background.work, lambda: self._go_on(background))
            return
        self._num_passed += 1
        has_background = background is not None
        work = self._scheduler.next(self._can_encode(), has_background=has_background)
        if work is None:
            return
        encode_slowly = self._encode_slowly
        if isinstance(work, Encode) and encode_slowly and self._scheduler.begin_background(work):
            pieces = encode_slowly(work.sequences, self._audio(work))
            self._background, self._num_passed = Background(work, pieces), 0
            return
        duration_s = self._attempt(work, lambda: self._carry_out(work))
        self._scheduler.ran(work, duration_s)

    def _attempt(self, work: Encode | Step, run: Callable[[], None]) -> float:
        """Run a piece of work; whatever it raises costs its windows, and nobody else's.

        Returns:
            Seconds that it took.
        """
        start = time.perf_counter()
        try:
            run()
        except torch.OutOfMemoryError:
            logger.warning("out of memory with %d windows at once", len(work.sequences))
            self._scheduler.shed(work)
            self._lose(work, "the engine was out of memory")
        except Exception:
            # the edge of the engine: a bug costs the requests that met it, never the service
            logger.exception("a step failed")
            self._lose(work, "the engine failed")
        duration_s = time.perf_counter() - start
        if isinstance(work, Encode):
            self._counters.encode_s += duration_s
        else:
            self._counters.decode_s += duration_s
        return duration_s

    def _go_on(self, background: Background) -> None:
        """Encode the next piece of the windows in the background."""
        try:
            next(background.pieces)
        except StopIteration:
            self._background = None
            self._scheduler.end_background(background.work)

    def _audio(self, work: Encode) -> list[Samples]:
        return [self._requests[sequence.id].window.audio for sequence in work.sequences]

    def _take_in(self, request: Request) -> None:
        sequence = request.sequence
        try:
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

    def _lose(self, work: Encode | Step, message: str) -> None:
        self._counters.num_failures += 1
        for sequence in work.sequences:
            if sequence.id in self._requests:
                self._answer(self._requests[sequence.id], StreamLost(message))

    def _answer(self, request: Request, error: EngineError) -> None:
        self._drop(request)
        request.on_done(error)

    def _drop(self, request: Request) -> None:
        sequence = request.sequence
        self._requests.pop(sequence.id, None)
        background = self._background
        if background is not None and sequence in background.work.sequences:
            self._background = None  # its pages are others' from now on
        if sequence.phase is not Phase.DONE:
            self._scheduler.release(sequence)
        self._runner.forget(sequence)
