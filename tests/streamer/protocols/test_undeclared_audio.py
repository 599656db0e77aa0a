"""Every protocol that takes raw audio refuses at once what is none, and names the way out."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from typing import Any

import numpy as np
import pytest
import websockets

from streamer.config import ServerConfig
from streamer.protocols.wyoming.messages import WyomingEvent
from streamer.protocols.wyoming.messages import encode as encode_event
from streamer.protocols.wyoming.server import serve
from tests.support.audio import babble, pcm16
from tests.support.containers import encode
from tests.support.engines import CountingEngine
from tests.support.running_service import Running

SPEECH = babble(2.0)
WEBM = encode("webm", "libopus", np.repeat(SPEECH, 3), rate=48_000)
SENT = {
    "container": WEBM,
    "container without its head": WEBM[1000:],
    "another encoding": (SPEECH * 0.9).astype("<f4").tobytes(),
}


def append(data: bytes) -> str:
    audio = base64.b64encode(data).decode()
    return json.dumps({"type": "input_audio_buffer.append", "audio": audio})


def raw(data: bytes) -> bytes:
    return data


DIALECTS: dict[str, tuple[str, list[dict[str, Any]], Any, str]] = {
    "native": ("/v1/stream", [{"type": "start"}], raw, 'encoding "container"'),
    "deepgram": ("/v1/listen?encoding=linear16&sample_rate=16000", [], raw, "encoding out"),
    "whisperlive": ("/", [{"uid": "a", "audio_format": "int16"}], raw, "raw samples"),
    "realtime": ("/v1/realtime", [], append, "raw samples"),
    "vllm": ("/v1/realtime", [{"type": "session.update", "model": "?"}], append, "raw samples"),
}


@pytest.mark.parametrize("sent", SENT)
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_what_is_no_raw_audio_is_a_fatal_error(
    service: Running, dialect: str, sent: str
) -> None:
    path, opening, wrap, remedy = DIALECTS[dialect]
    messages = []
    async with websockets.connect(service.ws + path, compression=None) as socket:
        for message in opening:
            await socket.send(json.dumps(message).replace("?", "whisper-1"))
        data = SENT[sent]
        # no more than two seconds of the slowest browser's Opus
        for first in range(0, 8192, 1024):
            await socket.send(wrap(data[first : first + 1024]))
        async with asyncio.timeout(10):
            with contextlib.suppress(websockets.ConnectionClosed):
                while True:
                    messages.append(await socket.recv())
    error = next(text for text in map(str, messages) if "expected pcm_s16le" in text)
    assert remedy in json.dumps(json.loads(error), ensure_ascii=False).replace("\\", "")
    assert "invalid_audio" in error or "DATA-0000" in error or dialect == "whisperlive"
    assert socket.close_code == 1008


@pytest.mark.parametrize("sent", SENT)
async def test_wyoming_says_so_too_and_closes(sent: str) -> None:
    async with serve(CountingEngine, ServerConfig(port=0)) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
        data = SENT[sent]
        for first in range(0, 8192, 1024):
            piece = data[first : first + 1024]
            form = {"rate": 16_000, "width": 2, "channels": 1}
            writer.write(encode_event(WyomingEvent("audio-chunk", form, piece)))
        async with asyncio.timeout(10):
            answer = await reader.read()  # up to the close
        writer.close()
    assert b"invalid_audio" in answer and b"raw samples" in answer


async def test_raw_audio_is_taken(service: Running) -> None:
    for path, opening, wrap, _ in DIALECTS.values():
        async with websockets.connect(service.ws + path, compression=None) as socket:
            for message in opening:
                await socket.send(json.dumps(message).replace("?", "whisper-1"))
            await socket.send(wrap(pcm16(SPEECH)))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.3):
                    while True:
                        assert "expected pcm_s16le" not in str(await socket.recv())
