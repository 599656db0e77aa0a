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

from engine.api import EngineBusy, EngineError, Samples, StreamLost
from engine.batching.counters import Counters
from engine.batching.device_encoder import InFlight
from engine.batching.encoder_interface import Encoded, Encoder
from engine.batching.recovery import Recovery
from engine.batching.request import Request
from engine.batching.scheduler import Encode, Scheduler, Step
from engine.batching.sequence import Sequence

logger = logging.getLogger(__name__)

IDLE_S = 0.5  # without work before memory is given back
TIDY_INTERVAL_S = 20.0  # at most, work or not: giving memory back pauses everything for some 50 ms


class ModelRunner(Protocol):
    """What runs the model for the loop and its encoder; tests run the loop without a model."""

    def encode(self, sequences: Rows[Sequence], audio: Rows[Samples]) -> InFlight | None:
        """Encode windows, or start to: see `engine.batching.device_encoder.DeviceEncoder`."""
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
        self._has_died = False
        self._recovery = Recovery(scheduler, runner, counters)
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

    @property
    def has_died(self) -> bool:
        """Whether a fault ended the thread: nothing is decoded any more."""
        return self._has_died

    def close(self) -> None:
        """Stop the thread, and answer all that is left with StreamLost."""
        with self._wake:
            self._is_closing = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join()
        self._encoder.close()
        if not self._has_died:
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
        reason = "the engine was closed"
        try:
            self._work()
        except Exception:
            # the edge of the engine: what is wrong here is wrong for all windows
            logger.exception("the engine's thread died")
            reason = "the engine died"
            self._has_died = True
        with self._wake:
            self._is_closing = True  # nothing joins any more
            left = [r for r, is_new in self._inbox if is_new]
            self._inbox.clear()
        for request in [*self._requests.values(), *left]:
            if not self._has_died:
                self._drop(request)
            request.on_done(StreamLost(reason))
        self._requests.clear()

    def _work(self) -> None:
        has_more = False  # work that needs no news
        while True:
            is_idle = False
            with self._wake:
                while not (
                    self._inbox or self._is_closing or self._has_news or has_more or is_idle
                ):
                    is_idle = not self._wake.wait(self._until_tidy())
                if self._is_closing:
                    return
                self._has_news = False
            if is_idle or (
                self._has_worked and time.monotonic() >= self._tidied_at + TIDY_INTERVAL_S
            ):
                self._tidy()
                self._tidied_at, self._has_worked = time.monotonic(), False
            has_worked = self.step()
            self._has_worked |= has_worked
            has_more = bool(self._requests) and has_worked

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
        self._recovery.grow()
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
        self._requests[sequence.id] = request  # before anything can fail: it must be answered
        try:
            replaced = self._scheduler.add(sequence)
        except EngineBusy as error:
            del self._requests[sequence.id]
            request.on_done(error)
            return
        if replaced is not None:
            older = self._requests[replaced.id]
            self._answer(older, EngineBusy("a newer window of the stream took its place"))

    def _start_encoding(self, work: Encode) -> None:
        self._scheduler.begin_encoding(work)
        self._encode(work)

    def _encode(self, work: Encode) -> None:
        self._counters.num_encodes += 1
        self._counters.num_encoded += len(work.sequences)
        audio = [self._requests[sequence.id].window.audio for sequence in work.sequences]
        self._encoder.start(work, audio)

    def _take_encoded(self) -> None:
        while done := self._encoder.take_done():
            for encoded in done:
                self._counters.encode_s += encoded.duration_s
                self._scheduler.record(encoded.work, encoded.blocked_s)
                again = [] if encoded.error is None else self._lose_encode(encoded)
                for work in again:
                    self._encode(work)
                is_again = {sequence.id for work in again for sequence in work.sequences}
                over = tuple(s for s in encoded.work.sequences if s.id not in is_again)
                self._scheduler.end_encoding(Encode(over))

    def _lose_encode(self, encoded: Encoded) -> list[Encode]:
        """Answer a window that cannot be encoded; of several, return what to encode again."""
        assert encoded.error is not None
        message = self._recovery.note(encoded.error, encoded.work)
        again = self._recovery.halve(encoded.work)
        if len(encoded.work.sequences) == 1:
            request = self._requests.get(encoded.work.sequences[0].id)
            if request is not None:
                self._answer(request, StreamLost(message))
        return again

    def _decode(self, step: Step) -> None:
        """Run a decoder step; whatever it raises costs the windows that it is the fault of."""
        start = time.perf_counter()
        for casualty in self._recovery.step(step.sequences):
            self._answer(self._requests[casualty.sequence.id], StreamLost(casualty.message))
        self._postprocess(step)
        duration_s = time.perf_counter() - start
        self._counters.decode_s += duration_s
        self._scheduler.record(step, duration_s)

    def _postprocess(self, step: Step) -> None:
        """Finish the sequences that stopped, or that are to go on in the language detected."""
        for sequence in step.sequences:
            # a runner may answer one step late
            has_language = sequence.needs_language and sequence.language_probabilities is not None
            request = self._requests.get(sequence.id)
            if request is None or not (sequence.is_stopped or has_language):
                continue
            try:
                is_answered = self._finish(request)
            except Exception as error:
                self._answer(request, StreamLost(self._recovery.note(error)))
                continue
            if is_answered:
                self._drop(request)

    def _answer(self, request: Request, error: EngineError) -> None:
        try:
            self._drop(request)
        finally:
            request.on_done(error)

    def _drop(self, request: Request) -> None:
        sequence = request.sequence
        self._requests.pop(sequence.id, None)
        self._scheduler.release(sequence)
        self._runner.forget(sequence)
