"""Containers on `/v1/stream`: what MediaRecorder and the like write, in pieces."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from fractions import Fraction
from typing import Any

import av
import numpy as np
import pytest
import soxr
import websockets

from tests.support.audio import babble, quiet
from tests.support.running_service import Running

TALK = np.concatenate([quiet(1.0), babble(2.0), quiet(2.0)])
TEXT = "w2 w3 w4 w5"
URL = "/v1/stream?encoding=container&vad_threshold=0"


def encode(container: str, codec: str) -> bytes:
    """Write the talk as a recorder would: of unknown length, where the container allows it."""
    file = io.BytesIO()
    options = {"live": "1"} if container == "webm" else {}
    with av.open(file, "w", format=container, options=options) as output:
        stream = output.add_stream(codec, rate=48_000, layout="mono")
        samples = soxr.resample(TALK, 16_000, 48_000)[None, :]
        frame = av.AudioFrame.from_ndarray(samples.astype(np.float32), format="fltp", layout="mono")
        frame.sample_rate, frame.time_base, frame.pts = 48_000, Fraction(1, 48_000), 0
        output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
        file.close = lambda: None  # type: ignore[method-assign]
    return file.getvalue()


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
    messages = await stream(service, encode(container, codec), 4000)
    assert text_of(messages) == TEXT
    assert messages[-1]["type"] == "done"
    assert messages[-1]["duration"] == pytest.approx(5.0, abs=0.1)


async def test_words_come_before_the_recording_ends(service: Running) -> None:
    data = encode("webm", "libopus")
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


@pytest.mark.parametrize("data", [b"this is text, and no sound", encode("webm", "libopus")[3000:]])
async def test_what_is_no_audio_is_a_fatal_error(service: Running, data: bytes) -> None:
    messages = await stream(service, data, 4000)
    assert messages[-1]["type"] == "error" and messages[-1]["fatal"]
    assert messages[-1]["code"] == "invalid_audio"
