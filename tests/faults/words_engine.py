"""A deterministic engine for a process of its own: it names each half second of sound."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from engine.api import Hypothesis, ModelInfo, StreamOptions, Window
from tests.support.running_service import CountingStream


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast the engine is."""

    cost_s: float = 0.01  # of one window
    width: int = 8  # windows at once
    num_free: int = 2  # windows at the start that cost nothing: the warm-up


class WordsEngine:
    """Decodes up to `width` windows at once, finals before partials, each in `cost_s`."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._num_running = 0
        # finals first, then in the order in which they came
        self._waiting: asyncio.PriorityQueue[tuple[bool, int, asyncio.Future[None]]] | None = None
        self._num_asked = 0
        self._num_started = 0

    @property
    def info(self) -> ModelInfo:
        return ModelInfo("words", ("en", "de", "fr"), "cpu", "float32")

    @contextlib.asynccontextmanager
    async def stream(self, options: StreamOptions) -> AsyncIterator[WordsStream]:
        yield WordsStream(self, CountingStream(options))

    @contextlib.asynccontextmanager
    async def place(self, is_final: bool) -> AsyncIterator[None]:
        """Wait for a place."""
        if self._waiting is None:
            self._waiting = asyncio.PriorityQueue()
        if self._num_running >= self._pace.width:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._num_asked += 1
            self._waiting.put_nowait((not is_final, self._num_asked, future))
            await future
        else:
            self._num_running += 1
        try:
            self._num_started += 1
            if self._num_started > self._pace.num_free:
                await asyncio.sleep(self._pace.cost_s)
            yield
        finally:
            self._pass_on()

    def _pass_on(self) -> None:
        """Give the place to who waits for it, if he still does."""
        assert self._waiting is not None
        while not self._waiting.empty():
            future = self._waiting.get_nowait()[2]
            if not future.done():
                future.set_result(None)
                return
        self._num_running -= 1


class WordsStream:
    def __init__(self, engine: WordsEngine, words: CountingStream) -> None:
        self._engine = engine
        self._words = words

    async def decode(self, window: Window) -> Hypothesis:
        async with self._engine.place(window.is_final):
            return await self._words.decode(window)


def make(pace: Pace) -> WordsEngine:
    return WordsEngine(pace)
