"""A service that runs on a free port, for clients that know nothing of the tests.

Its engine is real where a test asks for it; else it is `CountingEngine`, which names each half
second of sound that is not silent, so that texts and times are known in advance.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import wave
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
from streamer.app import create_app
from streamer.config import ServerConfig
from streamer.service import Service
from streamer.transport.server import Server, listen

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


# first three formants of six vowels, Hz (Peterson and Barney 1952)
VOWELS = np.array(
    [
        (730, 1090, 2440),
        (270, 2290, 3010),
        (300, 870, 2240),
        (530, 1840, 2480),
        (570, 840, 2410),
        (660, 1720, 2410),
    ]
)
SYLLABLE_S = 0.2


def babble(seconds: float, seed: int = 3) -> Samples:
    """Make sound that the speech detector takes for a voice throughout.

    Args:
        seconds: whole half seconds give whole words of CountingEngine.
        seed: 2 and 3 have been tried; with others the detector hears a pause here and there.
    """
    rng = np.random.default_rng(seed)
    t = np.arange(int(seconds * S)) / S
    num_syllables = int(np.ceil(seconds / SYLLABLE_S)) + 2
    at = np.arange(num_syllables) * SYLLABLE_S
    targets = VOWELS[rng.integers(0, len(VOWELS), num_syllables)]
    formants = [np.interp(t, at, targets[:, i]) for i in range(3)]
    pitch = np.interp(t, at, rng.uniform(95, 150, num_syllables))
    phase = 2 * np.pi * np.cumsum(pitch) / S
    voice = np.zeros_like(t)
    for harmonic in range(1, 36):
        gain = sum(
            amplitude / (1 + ((harmonic * pitch - formant) / bandwidth) ** 2)
            for formant, bandwidth, amplitude in zip(
                formants, (80, 110, 160), (1.0, 0.5, 0.25), strict=True
            )
        )
        voice += gain * np.sin(harmonic * phase) / np.sqrt(harmonic)
    within = (t / SYLLABLE_S) % 1
    voice *= np.clip(np.sqrt(np.sin(np.pi * within)), 0.08, 1) / np.abs(voice).max()
    voice += 0.06 * rng.standard_normal(len(t)) * (within > 0.82)  # as of fricatives
    return (0.5 * voice / np.abs(voice).max()).astype(np.float32)


def quiet(seconds: float) -> Samples:
    """Make the sound of a room where nobody speaks."""
    noise = np.random.default_rng(1).standard_normal(int(seconds * S))
    return (1e-4 * noise).astype(np.float32)


def pcm16(samples: Samples) -> bytes:
    return (samples * 32767).astype("<i2").tobytes()


def wav(*channels: Samples, rate: int = S) -> bytes:
    """Write a WAV file of 16 bits."""
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setparams((len(channels), 2, rate, 0, "NONE", ""))
        writer.writeframes(pcm16(np.stack(channels, axis=1).reshape(-1)))
    return file.getvalue()


def silent_wav(rate: int) -> bytes:
    """Write a WAV file of a second of silence."""
    return wav(np.zeros(rate, np.float32), rate=rate)


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

    async def wait_heard(self, seconds: float) -> None:
        """Return once sessions have taken that much sound; what is cut off then is not theirs."""
        async with asyncio.timeout(30):
            while self.service.metrics.totals()["audio_seconds"] < seconds - 0.001:
                await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def running(
    load_engine: Callable[[], Engine] = CountingEngine, config: ServerConfig | None = None
) -> AsyncIterator[Running]:
    """Serve on a free port for as long as the context is open."""
    config = config or ServerConfig(port=0, drain_timeout_s=2.0, calibrate=False)
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
