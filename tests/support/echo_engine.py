"""An engine without a model that can be told, by its windows' prompts, to misbehave."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Mapping

from engine.api import (
    EngineBusy,
    Hypothesis,
    InvalidRequest,
    ModelInfo,
    Segment,
    StreamOptions,
    Window,
)


class EchoEngine:
    """Answers with what it was asked: language, prompt, place and sum of the window."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._num_streams = 0
        self._num_cancelled = 0

    @property
    def info(self) -> ModelInfo:
        return ModelInfo(self._name, ("en", "de"), "cpu", "float32")

    def statistics(self) -> Mapping[str, float]:
        return {"streams": self._num_streams, "cancelled_total": self._num_cancelled}

    @contextlib.asynccontextmanager
    async def stream(self, options: StreamOptions) -> AsyncIterator[EchoStream]:
        if options.language == "xx":
            raise InvalidRequest("expected en or de, got xx")
        self._num_streams += 1
        try:
            yield EchoStream(self, options)
        finally:
            self._num_streams -= 1

    def note_cancelled(self) -> None:
        self._num_cancelled += 1


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
        text = f" {self._options.language} {window.prompt} {window.audio.sum():.1f}"
        segment = Segment(text, window.start, window.end, False)
        language = self._options.language or "en"
        return Hypothesis(window.start, window.end, (segment,), language, 1.0)


def make(name: str) -> EchoEngine:
    if name == "broken":
        raise ValueError("expected a model, got a broken one")
    return EchoEngine(name)
