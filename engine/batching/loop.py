"""The step loop: one thread that takes requests in, runs the model, and hands texts out.

Each step asks the scheduler what is next, then starts an encode or runs the decoder once, and then
postprocesses: sequences that stopped are finished and answered.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from collections.abc import Sequence as Rows
from typing import Protocol

import torch

from engine.api import EngineBusy, EngineError, Samples, StreamLost
from engine.batching.counters import Counters
from engine.batching.encoder import Encoder, InFlight
from engine.batching.request import Request
from engine.batching.scheduler import Encode, Scheduler, Step
from engine.batching.sequence import Sequence

logger = logging.getLogger(__name__)

IDLE_S = 0.5  # without work before memory is given back
TIDY_INTERVAL_S = 20.0  # at most, work or not: giving memory back pauses everything for some 50 ms


class ModelRunner(Protocol):
    """What runs the model for the loop and its encoder; tests run the loop without a model."""

    def encode(self, sequences: Rows[Sequence], audio: Rows[Samples]) -> InFlight | None:
        """Encode windows, or start to: see `engine.batching.encoder.DeviceEncoder`."""
        ...

    def step(self, sequences: Rows[Sequence]) -> None:
        """Run the decoder once."""
        ...

    def forget(self, sequence: Sequence) -> None:
        """Drop what is kept of a sequence outside the pools."""
        ...


class Loop:
    """Owns the scheduler and the runner. `submit`, `abort` and `close` may come from any thread."""

    def __init__(
        self,
        scheduler: Scheduler,
        runner: ModelRunner,
        encoder: Encoder,
        finish: Callable[[Request], bool],
        counters: Counters,
        tidy: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare the loop; `start` starts its thread.

        Args:
            encoder: opened by `start` and closed by `close`.
            finish: called after each step for a sequence that stopped or whose language was
                detected; True ends the request, which has been answered; False lets it decode on.
            tidy: called now and then, preferably when there is nothing to do.
        """
        self._scheduler = scheduler
        self._runner = runner
        self._encoder = encoder
        self._finish = finish
        self._counters = counters
        self._tidy = tidy
        self._tidied_at = time.monotonic()
        self._has_worked = False  # since then
        self._inbox: deque[tuple[Request, bool]] = deque()  # True: new, False: abort
        self._requests: dict[int, Request] = {}  # by sequence id, from submit to its result
        self._wake = threading.Condition()
        self._has_news = False  # of the encoder
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        self._encoder.open(self._note_news)
        self._thread.start()

    def submit(self, request: Request) -> None:
        """Let a request join; its on_done is called once, unless it is aborted."""
        self._post(request, True)

    def abort(self, request: Request) -> None:
        """Take a request out in any state; nothing happens if it is answered already."""
        self._post(request, False)

    def close(self) -> None:
        """Stop the thread, and answer all that is left with StreamLost."""
        with self._wake:
            self._is_closing = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join()
        self._encoder.close()
        self._take_encoded()

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
            if is_idle or (
                self._has_worked and time.monotonic() >= self._tidied_at + TIDY_INTERVAL_S
            ):
                self._tidy()
                self._tidied_at, self._has_worked = time.monotonic(), False
            has_worked = self.step()
            self._has_worked |= has_worked
            has_more = bool(self._requests) and has_worked
        for request in (*self._requests.values(), *(r for r, is_new in self._inbox if is_new)):
            self._answer(request, StreamLost("the engine was closed"))

    def _until_tidy(self) -> float | None:
        """Return the seconds without work until memory is given back, or None if there is none."""
        if not self._has_worked:
            return None
        return max(IDLE_S, self._tidied_at + TIDY_INTERVAL_S - time.monotonic())

    def step(self) -> bool:
        """Take in what has arrived, then start an encode or run a decoder step.

        Returns:
            False if there was nothing to do until something else arrives.
        """
        self._take_messages()
        self._take_encoded()
        work = self._scheduler.next(self._encoder.admission)
        if isinstance(work, Encode):
            self._start_encoding(work)
        else:
            self._encoder.make_way(work)
            if work is not None:
                self._decode(work)
        return work is not None

    def _take_messages(self) -> None:
        while self._inbox:
            request, is_new = self._inbox.popleft()
            if is_new:
                self._take_in(request)
            elif request.sequence.id in self._requests:
                self._drop(request)

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

    def _start_encoding(self, work: Encode) -> None:
        self._counters.num_encodes += 1
        self._counters.num_encoded += len(work.sequences)
        self._scheduler.begin_encoding(work)
        audio = [self._requests[sequence.id].window.audio for sequence in work.sequences]
        self._encoder.start(work, audio)

    def _take_encoded(self) -> None:
        for encoded in self._encoder.take_done():
            self._counters.encode_s += encoded.duration_s
            if encoded.error is not None:
                self._fail(encoded.work, encoded.error)
            self._scheduler.record(encoded.work, encoded.blocked_s)
            self._scheduler.end_encoding(encoded.work)

    def _decode(self, step: Step) -> None:
        """Run a decoder step; whatever it raises costs the windows in it and no others."""
        start = time.perf_counter()
        try:
            self._runner.step(step.sequences)
            self._postprocess(step)
        except Exception as error:
            # the edge of the engine: a bug costs the requests that met it, never the service
            self._fail(step, error)
        duration_s = time.perf_counter() - start
        self._counters.decode_s += duration_s
        self._scheduler.record(step, duration_s)

    def _postprocess(self, step: Step) -> None:
        """Finish the sequences that stopped, or that are to go on in the language detected."""
        for sequence in step.sequences:
            # a runner may answer one step late
            has_language = sequence.needs_language and sequence.language_probabilities is not None
            if sequence.is_stopped or has_language:
                request = self._requests[sequence.id]
                if self._finish(request):
                    self._drop(request)

    def _fail(self, work: Encode | Step, error: Exception) -> None:
        """Answer the requests whose work failed."""
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

    def _answer(self, request: Request, error: EngineError) -> None:
        self._drop(request)
        request.on_done(error)

    def _drop(self, request: Request) -> None:
        sequence = request.sequence
        self._requests.pop(sequence.id, None)
        self._scheduler.release(sequence)
        self._runner.forget(sequence)
