"""Three engines without a model.

`CountingEngine` names what it is given, so that texts and times of any audio are known in advance,
and can be as slow as a test needs. `ScriptedEngine` knows a timeline, and can lose streams.
`EchoEngine` answers with what it was asked, and can be told to misbehave.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import os
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from engine.api import (
    EngineBusy,
    Hypothesis,
    InvalidRequest,
    ModelInfo,
    Segment,
    StreamLost,
    StreamOptions,
    Window,
    Word,
)
from tests.support.timeline import Recogniser

CELL = 8_000  # samples that CountingEngine names with one word


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast an engine is."""

    cost_s: float = 0.001  # of one window
    width: int = 1_000  # windows at once
    num_free: int = 0  # windows at the start that cost nothing: the warm-up
    max_streams: int = 10_000  # open at once
    num_answers: int | None = None  # windows that are answered at all; None: any number


class CountingEngine:
    """Returns " wN" for the N-th half second of audio, where there is any.

    Decodes finals before partials, else in the order in which they came.
    """

    def __init__(self, pace: Pace | None = None, *, language: str = "en") -> None:
        self.options: list[StreamOptions] = []  # of every stream that was opened
        self.num_streams = 0  # open now
        self.num_pending = 0  # windows that wait or are decoded now
        self.num_decoded = 0
        self.is_hung = False  # opens no stream, and does not say so
        self._pace = pace or Pace()
        self._language = language  # detected where none is given
        self._num_running = 0
        self._waiting: list[tuple[bool, int, asyncio.Future[None]]] = []  # a heap
        self._num_asked = 0
        self._num_started = 0

    @property
    def info(self) -> ModelInfo:
        return ModelInfo("counting", ("en", "de", "fr"), "cpu", "float32")

    @contextlib.asynccontextmanager
    async def stream(self, options: StreamOptions) -> AsyncIterator[CountingStream]:
        while self.is_hung:
            await asyncio.sleep(0.05)
        if self.num_streams >= self._pace.max_streams:
            raise EngineBusy("no room")
        self.options.append(options)
        self.num_streams += 1
        try:
            yield CountingStream(self, options.language or self._language)
        finally:
            self.num_streams -= 1

    async def take_time(self, is_final: bool) -> None:
        """Wait for a place, and for as long as a window takes."""
        self.num_pending += 1
        try:
            await self._take_place(is_final)
            self.num_decoded += 1
        finally:
            self.num_pending -= 1

    async def _take_place(self, is_final: bool) -> None:
        if self._num_running >= self._pace.width:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._num_asked += 1
            heapq.heappush(self._waiting, (not is_final, self._num_asked, future))
            try:
                await future
            except asyncio.CancelledError:
                if not future.cancelled():  # given a place, and cancelled before it ran
                    self._pass_on()
                raise
        else:
            self._num_running += 1
        try:
            self._num_started += 1
            if self._pace.num_answers is not None and self._num_started > self._pace.num_answers:
                await asyncio.Event().wait()
            if self._num_started > self._pace.num_free:
                await asyncio.sleep(self._pace.cost_s)
        finally:
            self._pass_on()

    def _pass_on(self) -> None:
        """Pass the place on to the next window that still waits for it."""
        while self._waiting:
            future = heapq.heappop(self._waiting)[2]
            if not future.done():
                future.set_result(None)
                return
        self._num_running -= 1


class CountingStream:
    def __init__(self, engine: CountingEngine, language: str) -> None:
        self._engine = engine
        self._language = language

    async def decode(self, window: Window) -> Hypothesis:
        await self._engine.take_time(window.is_final)
        words = tuple(_count(window))
        segments = ()
        if words:
            text = "".join(word.text for word in words)
            segments = (Segment(text, words[0].start, words[-1].end, False, words),)
        return Hypothesis(
            window.start,
            window.end,
            segments,
            self._language,
            0.9,
            avg_logprob=-0.1,
            no_speech_probability=0.0 if words else 0.9,
        )


def _count(window: Window) -> Iterator[Word]:
    for number in range(-(-window.start // CELL), window.end // CELL):
        start = number * CELL
        audio = window.audio[start - window.start :][:CELL]
        if np.sqrt(np.mean(np.square(audio))) > 0.01:
            yield Word(f" w{number}", start, start + CELL, 0.9)


def make_counting(pace: Pace) -> CountingEngine:
    return CountingEngine(pace)


class ScriptedEngine:
    """An engine over a Recogniser; decodes take `cost_s`, and some streams may be lost."""

    def __init__(self, recogniser: Recogniser, cost_s: float = 0.0, lose_every: int = 0) -> None:
        self.recogniser = recogniser
        self.cost_s = cost_s
        self.lose_every = lose_every
        self.num_open = 0
        self.num_decodes = 0
        self.options: list[StreamOptions] = []
        self.failure: Exception | None = None

    @property
    def info(self) -> ModelInfo:
        return ModelInfo("scripted", ("en", "de"), "cpu", "float32")

    @contextlib.asynccontextmanager
    async def stream(self, options: StreamOptions) -> AsyncIterator[ScriptedStream]:
        self.num_open += 1
        self.options.append(options)
        try:
            yield ScriptedStream(self)
        finally:
            self.num_open -= 1


class ScriptedStream:
    def __init__(self, engine: ScriptedEngine) -> None:
        self._engine = engine
        self._is_lost = False

    async def decode(self, window: Window) -> Hypothesis:
        engine = self._engine
        await asyncio.sleep(engine.cost_s)
        if engine.failure is not None:
            raise engine.failure
        engine.num_decodes += 1
        if self._is_lost or (engine.lose_every and engine.num_decodes % engine.lose_every == 0):
            self._is_lost = True
            raise StreamLost("scripted loss")
        return engine.recogniser.decode(window)


class EchoEngine:
    """Answers with what it was asked: language, prompt, place and sum of the window.

    A window's prompt can tell it to misbehave: "sleep 2", "hang", "die", "busy", "bug", "forget",
    "odd", "dead".
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._num_streams = 0
        self._num_cancelled = 0

    @property
    def info(self) -> ModelInfo:
        return ModelInfo(self._name, ("en", "de"), "cpu", "float32")

    def statistics(self) -> Mapping[str, float]:
        return {"streams": self._num_streams, "cancelled_total": self._num_cancelled}

    def stream(self, options: StreamOptions) -> contextlib.AbstractAsyncContextManager[EchoStream]:
        if options.language == "yy":
            raise KeyError("what only our bug can cause")
        return self._open(options)

    @contextlib.asynccontextmanager
    async def _open(self, options: StreamOptions) -> AsyncIterator[EchoStream]:
        if options.language == "xx":
            raise InvalidRequest("expected en or de, got xx")
        self._num_streams += 1
        try:
            yield EchoStream(self, options)
        finally:
            self._num_streams -= 1

    def note_cancelled(self) -> None:
        self._num_cancelled += 1

    def die(self) -> None:
        raise AssertionError("expected a MortalEchoEngine")


class MortalEchoEngine(EchoEngine):
    """One whose step loop can die, as that of the engine in a worker's process."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.is_up = True
        self.num_restarts = 0

    def die(self) -> None:
        self.is_up = False


class EchoStream:
    def __init__(self, engine: EchoEngine, options: StreamOptions) -> None:
        self._engine = engine
        self._options = options

    async def decode(self, window: Window) -> Hypothesis:
        match window.prompt.split():
            case ["sleep", seconds]:
                try:
                    await asyncio.sleep(float(seconds))
                except asyncio.CancelledError:
                    self._engine.note_cancelled()
                    raise
            case ["hang"]:
                time.sleep(3600)
            case ["die"]:
                os._exit(9)
            case ["busy"]:
                raise EngineBusy("no room")
            case ["bug"]:
                raise KeyError("what only our bug can cause")
            case ["forget"]:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    self._engine.note_cancelled()
                    raise
            case ["odd"]:  # an answer that cannot be carried
                return Hypothesis(0, 1, (), "en", object())  # type: ignore[arg-type]
            case ["dead"]:
                self._engine.die()
                raise StreamLost("the engine's thread died")
        text = f" {self._options.language} {window.prompt} {window.audio.sum():.1f}"
        segment = Segment(text, window.start, window.end, False)
        language = self._options.language or "en"
        return Hypothesis(window.start, window.end, (segment,), language, 1.0)


class KeywordError(Exception):
    """As errors of HTTP libraries and compilers often are: a pickle of it cannot be read."""

    def __init__(self, *, response: str) -> None:
        super().__init__(response)


def make_echo(name: str) -> EchoEngine:
    match name:
        case "broken":
            raise ValueError("expected a model, got a broken one")
        case "keyword":
            raise KeywordError(response="404 from the hub")
        case "never":
            time.sleep(3600)
    return MortalEchoEngine(name)
