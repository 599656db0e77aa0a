"""A service that runs on a free port, for clients that know nothing of the tests.

Its engine is real where a test asks for it; else it is `CountingEngine`, which names each half
second of sound that is not silent, so that texts and times are known in advance.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

import numpy as np

from engine.api import (
    Engine,
    Hypothesis,
    ModelInfo,
    Samples,
    Segment,
    StreamOptions,
    Window,
    Word,
)
from streamer.config import ServerConfig
from streamer.process import Server, listen
from streamer.server import create_app
from streamer.service import Service

S = 16_000
CELL = 8_000  # samples that CountingEngine names with one word


class CountingEngine:
    """Says " wN" for the N-th half second of sound, where there is any."""

    def __init__(self) -> None:
        self.options: list[StreamOptions] = []  # of every stream that was opened

    @property
    def info(self) -> ModelInfo:
        return ModelInfo("counting", ("en", "de", "fr"), "cpu", "float32")

    def stream(self, options: StreamOptions) -> AbstractAsyncContextManager[CountingStream]:
        self.options.append(options)
        return contextlib.nullcontext(CountingStream(options))


class CountingStream:
    def __init__(self, options: StreamOptions) -> None:
        self._options = options

    async def decode(self, window: Window) -> Hypothesis:
        await asyncio.sleep(0.001)
        words = tuple(_count(window))
        segments = ()
        if words:
            text = "".join(word.text for word in words)
            segments = (Segment(text, words[0].start, words[-1].end, False, words),)
        return Hypothesis(
            window.start,
            window.end,
            segments,
            self._options.language or "en",
            0.9,
            avg_logprob=-0.1,
            no_speech_probability=0.0 if words else 0.9,
        )


def _count(window: Window) -> Iterator[Word]:
    for number in range(-(-window.start // CELL), window.end // CELL):
        start = number * CELL
        sound = window.audio[start - window.start :][:CELL]
        if np.sqrt(np.mean(np.square(sound))) > 0.01:
            yield Word(f" w{number}", start, start + CELL, 0.9)


def babble(seconds: float, seed: int = 0) -> Samples:
    """Make sound that every speech detector takes for speech; whole half seconds are best."""
    t = np.arange(int(seconds * S)) / S
    pitch = 120 + 20 * np.sin(2 * np.pi * 0.7 * t + seed)
    phase = 2 * np.pi * np.cumsum(pitch) / S
    sound = np.zeros_like(t)
    for harmonic in range(1, 30):
        formants = ((600, 150), (1200, 200), (2500, 300))
        gain = sum(
            np.exp(-(((120 * harmonic - centre) / width) ** 2)) for centre, width in formants
        )
        sound += gain * np.sin(harmonic * phase)
    sound *= 0.55 + 0.45 * np.sin(2 * np.pi * 4 * t)
    return (0.3 * sound / np.abs(sound).max()).astype(np.float32)


def quiet(seconds: float) -> Samples:
    """Make the sound of a room where nobody speaks."""
    noise = np.random.default_rng(1).standard_normal(int(seconds * S))
    return (1e-4 * noise).astype(np.float32)


def pcm16(samples: Samples) -> bytes:
    return (samples * 32767).astype("<i2").tobytes()


@dataclass(frozen=True, slots=True)
class Running:
    """Where a service listens."""

    host: str
    port: int
    service: Service

    @property
    def http(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def ws(self) -> str:
        return f"ws://{self.host}:{self.port}"


@contextlib.asynccontextmanager
async def running(
    load_engine: Callable[[], Engine] = CountingEngine, config: ServerConfig | None = None
) -> AsyncIterator[Running]:
    """Serve on a free port for as long as the context is open."""
    config = config or ServerConfig(port=0, drain_timeout_s=2.0)
    app = create_app(load_engine, config)
    service: Service = app.state.service
    listener = listen(config)
    server = Server(app, service, config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        await service.wait_loaded()
        if service.failure is not None:
            raise service.failure
        while not server.started:
            await asyncio.sleep(0.01)
        host, port = listener.getsockname()[:2]
        yield Running(host, port, service)
    finally:
        server.should_exit = True
        await serving
