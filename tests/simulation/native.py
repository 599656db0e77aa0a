"""Play a history to a whole session of `/v1/stream`, in a time that only its loop moves.

The client speaks ASGI to the routes, in place of a socket: all behind the transport is the real
thing. Connections break and are resumed; what lay in them then is lost. The engine, the speech
detector and the thread that loads the engine are stood in for.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any
from unittest import mock

import numpy as np
from starlette.applications import Starlette

from engine.api import (
    SAMPLE_RATE,
    Engine,
    Hypothesis,
    ModelInfo,
    StreamLost,
    StreamOptions,
    Window,
)
from streamer.config import ServerConfig
from streamer.protocols.native.route import routes
from streamer.service import Service
from tests.simulation.history import Act, Deed, History, make_history
from tests.simulation.properties import check_words, require
from tests.simulation.script import Script
from tests.simulation.track import SCALE, make_audio
from tests.simulation.wire import Wire
from tests.support.waiting import VirtualClock

SAMPLE_BYTES = 2
RECONNECT_S = 1.0  # before another try where the service took none
LIMIT_S = 3_600.0  # of simulated time, of which a history takes minutes


def make_native_history(seed: int) -> History:
    """Draw a history whose connection breaks up to three times more."""
    history = make_history(seed)
    rng = random.Random(f"breaks {seed}")
    breaks = tuple(
        Deed(rng.randrange(history.length), Act.BREAK, rng.choice([0.0, 0.2, 3.0, 20.0]))
        for _ in range(rng.randint(0, 3))
    )
    deeds = tuple(sorted((*history.deeds, *breaks), key=lambda deed: deed.at))
    return dataclasses.replace(history, deeds=deeds)


class ScriptEngine:
    """An engine that answers as a history says."""

    def __init__(self, history: History) -> None:
        self.script = Script(history)
        self.is_warm = False  # the windows before are the service's own
        self.num_in_flight = 0

    @property
    def info(self) -> ModelInfo:
        return ModelInfo("script", ("en", "de"), "cpu", "float32")

    @contextlib.asynccontextmanager
    async def stream(self, options: StreamOptions) -> AsyncIterator[ScriptStream]:
        yield ScriptStream(self, options.language)


class ScriptStream:
    def __init__(self, engine: ScriptEngine, language: str | None) -> None:
        self._engine = engine
        self._language = language

    async def decode(self, window: Window) -> Hypothesis:
        engine = self._engine
        if not engine.is_warm:
            return Hypothesis(window.start, window.end, (), "en", 1.0)
        require(engine.num_in_flight == 0, "two windows in flight")
        answer = engine.script.next_answer()
        engine.num_in_flight += 1
        try:
            await asyncio.sleep(answer.cost_s)
        finally:
            engine.num_in_flight -= 1
        if answer.is_lost:
            raise StreamLost("scripted loss")
        return engine.script.read(window, self._language)


class Client:
    """Sends the audio of a history and follows what is said, over one connection or several."""

    def __init__(self, app: Starlette, history: History) -> None:
        self._app = app
        self._history = history
        audio = make_audio(history.words, history.lead)
        self._data = np.rint(audio * SCALE).astype("<i2").tobytes()
        self._deeds = deque(history.deeds)
        self._sent = 0  # bytes
        self._num_packets = 0
        self._began_at = 0.0
        self._shift_s = 0.0
        self._session = ""
        self._seq = -1  # of the newest message
        self._settled: dict[int, str] = {}  # text by segment
        self.texts: list[str] = []  # of the Finals
        self.cuts: list[int] = []  # samples at which Finals end
        self._wire: Wire | None = None

    async def run(self) -> None:
        """Send all, and return when all is said."""
        self._began_at = time.monotonic()
        is_done = False
        while not is_done:
            self._wire = Wire(self._app)
            if not await self._open(self._wire):
                await asyncio.sleep(RECONNECT_S)
                continue
            sending = asyncio.create_task(self._send(self._wire))
            try:
                is_done = await self._follow(self._wire)
            finally:
                sending.cancel()
                away_s = (await asyncio.gather(sending, return_exceptions=True))[0]
            if isinstance(away_s, float):
                await asyncio.sleep(away_s)
            elif isinstance(away_s, Exception):
                raise away_s
        await self._wire.wait_closed()

    async def _open(self, wire: Wire) -> bool:
        opening: dict[str, Any] = {"type": "resume", "session": self._session, "seq": self._seq}
        if not self._session:
            opening = _start(self._history)
        await wire.send(json.dumps(opening))
        ready = await wire.receive()
        if ready is None:
            return False
        require(ready["type"] == "ready", f"expected ready, got {ready}")
        require(ready.get("seq", 0) >= self._seq, f"behind {self._seq}: {ready}")
        self._session = ready["session"]
        self._seq = max(self._seq, ready["seq"])
        self._sent = ready["received_bytes"]
        require(self._sent <= len(self._data), f"of {len(self._data)}: {ready}")
        return True

    async def _send(self, wire: Wire) -> float:
        """Send on from where the service has all; return how long the client is away then."""
        history = self._history
        while self._sent < len(self._data):
            size = history.packets[self._num_packets % len(history.packets)] * SAMPLE_BYTES
            self._num_packets += 1
            end = min(self._sent + size, len(self._data))
            recorded_s = end / SAMPLE_BYTES / SAMPLE_RATE / history.speed + self._shift_s
            await asyncio.sleep(max(0.0, self._began_at + recorded_s - time.monotonic()))
            if not await wire.send(self._data[self._sent : end]):
                return 0.0
            self._sent = end
            while self._deeds and self._deeds[0].at * SAMPLE_BYTES <= self._sent:
                deed = self._deeds.popleft()
                if deed.act is Act.BREAK:
                    await wire.cut()
                    return deed.seconds
                await self._do(wire, deed)
        await wire.send('{"type":"end"}')
        await asyncio.Event().wait()
        return 0.0

    async def _do(self, wire: Wire, deed: Deed) -> None:
        match deed.act:
            case Act.FINALIZE:
                await wire.send('{"type":"finalize"}')
            case Act.UPDATE:
                await wire.send('{"type":"update","prompt":"Wordwire"}')
            case Act.PAUSE:
                self._shift_s += deed.seconds
            case Act.STALL:
                await asyncio.sleep(deed.seconds)
            case Act.STANDSTILL:
                clock = asyncio.get_running_loop()._selector  # type: ignore[attr-defined]
                clock.jump(deed.seconds)

    async def _follow(self, wire: Wire) -> bool:
        """Take what is said; return whether it was all."""
        while (message := await wire.receive()) is not None:
            seq = message["seq"]
            require(seq > self._seq, f"behind {self._seq}: {message}")
            self._seq = seq
            match message["type"]:
                case "partial":
                    before = self._settled.get(message["segment"], "")
                    require(message["settled"].startswith(before), f"{before!r}, then {message}")
                    self._settled[message["segment"]] = message["settled"]
                case "final":
                    before = self._settled.pop(message["segment"], "")
                    require(message["segment"] == len(self.texts), f"out of order: {message}")
                    require(message["text"].startswith(before), f"{before!r}, then {message}")
                    self.texts.append(message["text"])
                    self.cuts.append(round(message["end"] * SAMPLE_RATE))
                case "error":
                    require(not message["fatal"], f"ended by {message['code']}: {message}")
                case "done":
                    require(message["segments"] == len(self.texts), f"{message}")
                    sent_s = len(self._data) / SAMPLE_BYTES / SAMPLE_RATE
                    require(abs(message["duration"] - sent_s) < 0.001, f"{sent_s} s: {message}")
                    return True
        return False


def _start(history: History) -> dict[str, Any]:
    settings = history.settings
    return {
        "type": "start",
        "resumable": True,
        "language": settings.language,
        "words": settings.word_times,
        "partials": settings.partials,
        "delay": settings.delay.value,
        "endpointing": settings.endpointing.value,
        "silence_ms": settings.silence_ms,
        "pre_roll_ms": settings.pre_roll_ms,
        "max_segment_s": settings.max_segment_s,
        "vad_threshold": settings.vad_threshold,
    }


async def _call(load: Callable[[], Engine]) -> Engine:
    """Load in the loop, where time is simulated, and not in a thread."""
    return load()


async def _play(history: History) -> None:
    engine = ScriptEngine(history)
    service = Service(ServerConfig(calibrate=False), lambda: engine)
    app = Starlette(routes=routes(service))
    async with asyncio.timeout(LIMIT_S), service.run():
        await service.wait_loaded()
        require(service.failure is None, f"not loaded: {service.failure!r}")
        engine.is_warm = True
        client = Client(app, history)
        await client.run()
        check_words(history, client.texts, client.cuts, history.length)
        require(service.num_sessions == 0, "a session that is over has its place still")


def run_native(history: History) -> None:
    """Play a history, under `track.listening_by_level`.

    Raises:
        Violation: a promise is broken.
    """
    clock = VirtualClock()
    with (
        mock.patch.object(time, "monotonic", lambda: clock.now),
        mock.patch("streamer.service.run_in_daemon", _call),
        asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(clock)) as runner,
    ):
        runner.run(_play(history))
