"""A client that names no language has it detected, by whatever interface."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import httpx
import pytest
import soxr
import websockets

from tests.support.audio import babble, pcm16, wav
from tests.support.engines import CountingEngine
from tests.support.running_service import Running

SOUND = babble(2.0)


@pytest.fixture
def served_engine() -> CountingEngine:
    """An engine that hears German, unless it is told otherwise."""
    return CountingEngine(language="de")


@pytest.fixture
def service(service: Running, served_engine: CountingEngine) -> Running:
    served_engine.options.clear()  # those of the warm-up
    return service


def asked(service: Running) -> set[str | None]:
    engine: Any = service.service._engine
    return {options.language for options in engine.options[:1]}


@pytest.mark.parametrize("language", ["", "&language=auto"])
async def test_a_live_session(service: Running, language: str) -> None:
    async with websockets.connect(f"{service.ws}/v1/stream?vad_threshold=0{language}") as socket:
        await socket.send(pcm16(SOUND))
        await socket.send('{"type":"end"}')
        messages = [json.loads(text) async for text in socket]
    assert asked(service) == {None}
    assert [m["language"] for m in messages if m["type"] == "final"] == ["de"]


async def test_a_file(service: Running) -> None:
    async with httpx.AsyncClient(base_url=service.http, timeout=30) as client:
        answer = await client.post(
            "/v1/audio/transcriptions",
            data={"model": "whisper-1", "response_format": "verbose_json"},
            files={"file": ("sound.wav", wav(SOUND))},
        )
    assert asked(service) == {None}
    assert answer.json()["language"] == "german"


async def test_a_realtime_session(service: Running) -> None:
    async with websockets.connect(f"{service.ws}/v1/realtime?intent=transcription") as socket:
        audio = base64.b64encode(pcm16(soxr.resample(SOUND, 16_000, 24_000))).decode()
        await socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))
        await socket.send('{"type":"input_audio_buffer.commit"}')
        async with asyncio.timeout(10):
            while not json.loads(await socket.recv())["type"].endswith(".completed"):
                pass
    assert asked(service) == {None}
