"""A client that is gone gives its place back, also while its session is too busy to read."""

from __future__ import annotations

import asyncio
import base64
import json

import pytest
from websockets.asyncio.client import connect

from engine.api import Engine
from streamer.config import ServerConfig
from tests.support.audio import babble, pcm16
from tests.support.engines import CountingEngine, Pace
from tests.support.running_service import Running

NUM_MESSAGES = 20  # of ten seconds each: four times what may wait


@pytest.fixture
def served_engine() -> Engine:
    """An engine that answers nothing after its warm-up."""
    return CountingEngine(Pace(num_free=2, num_answers=2))


@pytest.fixture
def service_config() -> ServerConfig:
    return ServerConfig(port=0, calibrate=False, drain_timeout_s=0.5, resume_grace_s=0.0)


AUDIO = pcm16(babble(10.0))
APPEND = json.dumps(
    {"type": "input_audio_buffer.append", "audio": base64.b64encode(AUDIO).decode()}
)
CLIENTS: dict[str, tuple[str, str | None, str | bytes]] = {
    "stream": ("/v1/stream?language=en", None, AUDIO),
    "deepgram": ("/v1/listen?encoding=linear16&sample_rate=16000", None, AUDIO),
    "realtime": ("/v1/realtime", None, APPEND),
    "vllm": ("/v1/realtime", '{"type":"session.update","model":"counting"}', APPEND),
    "whisperlive": ("/v1/whisperlive", '{"uid":"u"}', babble(10.0).tobytes()),
}


@pytest.mark.parametrize("name", CLIENTS)
async def test_a_client_that_is_gone_gives_its_place_back(service: Running, name: str) -> None:
    path, opening, audio = CLIENTS[name]
    socket = await connect(service.ws + path, compression=None, max_size=None)
    if opening is not None:
        await socket.send(opening)

    async def send() -> None:
        for _ in range(NUM_MESSAGES):
            await socket.send(audio)

    sending = asyncio.create_task(send())
    async with asyncio.timeout(60):
        while service.service.metrics.totals()["audio_seconds"] < 40.0:
            await asyncio.sleep(0.05)
    await asyncio.sleep(0.5)  # now it waits for room, and its socket is not read
    assert service.service.num_sessions == 1
    socket.transport.abort()
    async with asyncio.timeout(20):
        while service.service.num_sessions:
            await asyncio.sleep(0.1)
    await asyncio.gather(sending, return_exceptions=True)
