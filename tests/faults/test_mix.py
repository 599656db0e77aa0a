"""One client's words, options and clock never become another's."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import time
from collections.abc import Iterator

import pytest
from websockets.asyncio.client import connect

from engine.process.remote import RemoteEngine, start_engine
from engine.process.wire import Recipe
from streamer.config import ServerConfig
from tests.faults.speaker import speak, speech, words_of
from tests.support.running_service import CONFIG, Running, running

ROUNDS = 50


@pytest.fixture
def service_config() -> ServerConfig:
    return dataclasses.replace(CONFIG, resume_grace_s=0.1)


async def test_after_a_quick_reconnect_nothing_of_the_old_session_arrives(
    service: Running,
) -> None:
    long, short = speech(7), speech(1)
    for _ in range(ROUNDS):
        async with connect(f"{service.ws}/v1/stream", compression=None) as first:
            await first.send('{"type":"start","vad_threshold":0}')
            await first.send(long)
            first.transport.abort()
        # the half seconds of the long talk have numbers that the short one does not reach
        heard = await speak(service.ws, short, pace=50, vad_threshold=0)
        assert heard.words == words_of(1)


@pytest.fixture
def echo() -> Iterator[RemoteEngine]:
    engine = start_engine(Recipe("tests.support.engines", "make_echo", "echo"))
    yield engine
    engine.close()


async def test_options_of_sessions_side_by_side_stay_apart(echo: RemoteEngine) -> None:
    """The engine answers with the language and the prompt that it was asked with."""
    config = ServerConfig(port=0, drain_timeout_s=2.0, calibrate=False)
    async with running(lambda: echo, config) as service:

        async def talk(number: int) -> None:
            language = "de" if number % 2 else "en"
            async with connect(f"{service.ws}/v1/stream", compression=None) as socket:
                start = {"type": "start", "language": language, "vad_threshold": 0}
                await socket.send(json.dumps({**start, "prompt": f"name{number}"}))
                await socket.send(speech(1))
                await socket.send('{"type":"end"}')
                texts = [json.loads(text) async for text in socket]
            finals = " ".join(message["text"] for message in texts if message["type"] == "final")
            assert f"name{number}" in finals and language in finals
            for other in range(8):
                assert other == number or f"name{other}" not in finals

        for _ in range(10):
            await asyncio.gather(*(talk(number) for number in range(8)))


async def test_a_clock_that_jumps_changes_nothing(
    service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine's clock is set while people speak; what is timed is timed by another one."""
    real, offset = time.time, 0.0
    monkeypatch.setattr(time, "time", lambda: real() + offset)
    speaking = [asyncio.create_task(speak(service.ws, speech(3))) for _ in range(3)]
    for jump in (86_400.0, -7 * 86_400.0, 0.5, 0.0):
        await asyncio.sleep(0.8)
        offset = jump
    for heard in await asyncio.gather(*speaking):
        assert heard.words == words_of(3)
        assert heard.close_code == 1000
