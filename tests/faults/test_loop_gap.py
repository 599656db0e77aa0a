"""No single message or file holds the event loop for long, whatever it is made of.

Measures processor time, which other work on the machine lengthens: run on an idle one, with
WORDWIRE_LOOP_GAP=1.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass

import httpx
import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from streamer.config import ServerConfig
from tests.support.audio import wav
from tests.support.loop_gap import measure_loop_gap
from tests.support.running_service import Running

pytestmark = pytest.mark.skipif(
    "WORDWIRE_LOOP_GAP" not in os.environ, reason="measures time: WORDWIRE_LOOP_GAP is not set"
)

MAX_GAP_S = 0.05
MESSAGE_BYTES = 8 << 20  # the most that a message may have, by default
REALTIME_BYTES = 15 << 20  # of audio in one append
HEARD_S = 90.0  # of audio, after which enough of a message has been seen


@pytest.fixture
def service_config() -> ServerConfig:
    return ServerConfig(port=0, calibrate=False, drain_timeout_s=1.0)


@dataclass(frozen=True)
class Kind:
    """What a client sends."""

    path: str
    messages: Callable[[], list[str | bytes]]
    is_heard: bool = True  # it is audio, some minutes of it at least


def noise(num_bytes: int) -> bytes:
    return np.random.default_rng(1).integers(0, 256, num_bytes, np.uint8).tobytes()


def start(**fields: object) -> str:
    return json.dumps({"type": "start", **fields})


def append(audio: bytes) -> str:
    text = base64.b64encode(audio).decode()
    return json.dumps({"type": "input_audio_buffer.append", "audio": text})


def twilio_call(timestamp_ms: int) -> list[str | bytes]:
    form = {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1}
    opening = {"streamSid": "MZ1", "callSid": "CA1", "tracks": ["inbound"], "mediaFormat": form}
    messages = [json.dumps({"event": "start", "streamSid": "MZ1", "start": opening})]
    for number, at in enumerate((0, timestamp_ms), 1):
        payload = base64.b64encode(b"\xff" * 160).decode()
        media = {"track": "inbound", "chunk": str(number), "timestamp": str(at)}
        media["payload"] = payload
        messages.append(json.dumps({"event": "media", "streamSid": "MZ1", "media": media}))
    return [*messages]


RAW = {"encoding": "mulaw", "sample_rate": 8000}
FLOATS = {"encoding": "pcm_f32le", "sample_rate": 16000}
QUERY = "/v1/listen?encoding="
MANUAL = json.dumps({"type": "session.update", "session": {"type": "transcription"}})

KINDS = {
    "mu-law noise": Kind("/v1/stream", lambda: [start(**RAW), noise(MESSAGE_BYTES)]),
    "mu-law silence": Kind("/v1/stream", lambda: [start(**RAW), b"\xff" * MESSAGE_BYTES]),
    "floats": Kind("/v1/stream", lambda: [start(**FLOATS), noise(MESSAGE_BYTES)]),
    "small messages": Kind("/v1/stream", lambda: [start(**RAW), *[b"\xff" * 160] * 10_000]),
    "control messages": Kind(
        "/v1/listen?encoding=linear16&sample_rate=16000",
        lambda: ['{"type":"KeepAlive"}'] * 20_000,
        False,
    ),
    "empty messages": Kind(
        "/v1/listen?encoding=linear16&sample_rate=16000", lambda: [b""] * 60_000, False
    ),
    "deepgram, raw": Kind(f"{QUERY}mulaw&sample_rate=8000", lambda: [noise(MESSAGE_BYTES)]),
    "twilio, a jump": Kind("/v1/twilio", lambda: twilio_call(299_000)),
    "whisperlive": Kind("/v1/whisperlive", lambda: ['{"uid":"u"}', noise(MESSAGE_BYTES)]),
    "whisperlive, bytes": Kind(
        "/v1/whisperlive", lambda: ['{"uid":"u","audio_format":"uint8"}', noise(MESSAGE_BYTES)]
    ),
}


def _send(url: str, messages: list[str | bytes], stopped: threading.Event) -> None:
    with connect(url, compression=None, max_size=None, open_timeout=60) as opened:
        reading = threading.Thread(target=_read, args=(opened,), daemon=True)
        reading.start()
        try:
            for message in messages:
                opened.send(message)
                if stopped.is_set():
                    break
        except ConnectionClosed:
            return
        stopped.wait()
        opened.socket.shutdown(2)


def _read(opened: ClientConnection) -> None:
    with contextlib.suppress(ConnectionClosed, OSError):
        for _ in opened:
            pass


@pytest.mark.parametrize("name", KINDS)
async def test_no_message_holds_the_event_loop(service: Running, name: str) -> None:
    kind = KINDS[name]
    messages, stopped = await asyncio.to_thread(kind.messages), threading.Event()
    with measure_loop_gap() as gap:
        sending = asyncio.create_task(
            asyncio.to_thread(_send, service.ws + kind.path, messages, stopped)
        )
        try:
            async with asyncio.timeout(60):
                if kind.is_heard:
                    while service.service.metrics.totals()["audio_seconds"] < HEARD_S:
                        await asyncio.sleep(0.02)
                else:
                    await asyncio.sleep(2)
        finally:
            stopped.set()
            await sending
        await _wait_idle(service)
    print(f"{name}: {1e3 * gap.cpu_s:.0f} ms of processor, {1e3 * gap.wall_s:.0f} ms on the wall")
    assert gap.cpu_s < MAX_GAP_S


async def _wait_idle(service: Running) -> None:
    async with asyncio.timeout(30):
        while service.service.num_sessions:
            await asyncio.sleep(0.02)


async def _post(service: Running, path: str, **fields: object) -> float:
    def post() -> int:
        with httpx.Client(timeout=120) as client:
            return client.post(service.http + path, **fields).status_code  # type: ignore[arg-type]

    with measure_loop_gap() as gap:
        assert await asyncio.to_thread(post) in (200, 400)
    print(f"{1e3 * gap.cpu_s:.0f} ms of processor, {1e3 * gap.wall_s:.0f} ms on the wall")
    return gap.cpu_s


FILES = {
    "wav": lambda: wav(np.zeros(16_000 * 600, np.float32)),
}


@pytest.mark.parametrize("name", FILES)
async def test_no_upload_holds_the_event_loop(service: Running, name: str) -> None:
    content = await asyncio.to_thread(FILES[name])
    files, data = {"file": ("a", content)}, {"model": "whisper-1"}
    openai = await _post(service, "/v1/audio/transcriptions", files=files, data=data)
    deepgram = await _post(service, "/v1/listen", content=content)
    assert max(openai, deepgram) < MAX_GAP_S


async def test_no_upload_in_tiny_chunks_holds_the_event_loop(service: Running) -> None:
    """Some 40,000 chunks are read from the socket at once."""
    num_chunks = 200_000
    body = b"1\r\nx\r\n" * num_chunks + b"0\r\n\r\n"
    head = b"POST /v1/listen HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"

    def post() -> bytes:
        with socket.create_connection((service.host, service.port)) as raw:
            raw.sendall(head + body)
            return raw.recv(1000)

    with measure_loop_gap() as gap:
        assert (await asyncio.to_thread(post)).startswith(b"HTTP/1.1 400")
    print(f"chunks: {1e3 * gap.cpu_s:.0f} ms of processor")
    assert gap.cpu_s < MAX_GAP_S
