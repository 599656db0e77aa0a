"""Containers on `/v1/stream`: what MediaRecorder and the like write, in pieces."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import numpy as np
import pytest
import soxr
import websockets

from tests.support.audio import babble, quiet
from tests.support.containers import encode
from tests.support.running_service import Running

TALK = np.concatenate([quiet(1.0), babble(2.0), quiet(2.0)])
TEXT = "w2 w3 w4 w5"
URL = "/v1/stream?encoding=container&vad_threshold=0"


def encode_talk(container: str, codec: str) -> bytes:
    samples = soxr.resample(TALK, 16_000, 48_000).astype(np.float32)
    return encode(container, codec, samples, rate=48_000)


async def stream(service: Running, data: bytes, chunk: int) -> list[dict[str, Any]]:
    async with websockets.connect(service.ws + URL) as socket:
        for at in range(0, len(data), chunk):
            await socket.send(data[at : at + chunk])
        await socket.send('{"type": "end"}')
        messages = []
        with contextlib.suppress(websockets.ConnectionClosedError):
            async with asyncio.timeout(30):
                async for message in socket:
                    messages.append(json.loads(message))
        return messages


def text_of(messages: list[dict[str, Any]]) -> str:
    return " ".join(m["text"] for m in messages if m["type"] == "final" and m["text"])


@pytest.mark.parametrize(
    ("container", "codec"),
    [
        ("webm", "libopus"),
        ("ogg", "libopus"),
        ("flac", "flac"),
        ("mp3", "libmp3lame"),
        ("mp4", "aac"),
    ],
)
async def test_pieces_of_a_container_are_heard(
    service: Running, container: str, codec: str
) -> None:
    messages = await stream(service, encode_talk(container, codec), 4000)
    assert text_of(messages) == TEXT
    assert messages[-1]["type"] == "done"
    assert messages[-1]["duration"] == pytest.approx(5.0, abs=0.1)


async def test_words_come_before_the_recording_ends(service: Running) -> None:
    data = encode_talk("webm", "libopus")
    async with websockets.connect(service.ws + URL) as socket:
        await socket.send(data[: len(data) * 4 // 5])
        async with asyncio.timeout(30):
            while True:
                message = json.loads(await socket.recv())
                if (
                    message["type"] == "partial"
                    and "w3" in message["settled"] + message["volatile"]
                ):
                    break


@pytest.mark.parametrize(
    "data", [b"this is text, and no sound", encode_talk("webm", "libopus")[3000:]]
)
async def test_what_is_no_audio_is_a_fatal_error(service: Running, data: bytes) -> None:
    messages = await stream(service, data, 4000)
    assert messages[-1]["type"] == "error" and messages[-1]["fatal"]
    assert messages[-1]["code"] == "invalid_audio"
