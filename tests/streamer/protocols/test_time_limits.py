"""However long a client may stay, in every protocol: what was said arrives, then the close."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest
import websockets

from clients.telephone import encode_mulaw
from streamer.config import ServerConfig
from tests.support.audio import babble, pcm16
from tests.support.running_service import Running

SAID = "w0 w1 w2 w3"
LIMITS = {"session_too_long": {"max_session_s": 1.0}, "idle": {"idle_timeout_s": 0.7}}


@pytest.fixture(params=LIMITS)
def code(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def service_config(code: str) -> ServerConfig:
    return ServerConfig(port=0, calibrate=False, **LIMITS[code])


async def converse(socket: Any, *messages: str | bytes) -> list[dict[str, Any]]:
    """Send messages, then wait for the close; return what came."""
    for message in messages:
        await socket.send(message)
    received = []
    try:
        while True:
            received.append(json.loads(await asyncio.wait_for(socket.recv(), 30)))
    except websockets.ConnectionClosed:
        return received


async def test_stream(service: Running, code: str) -> None:
    async with websockets.connect(service.ws + "/v1/stream?vad_threshold=0") as socket:
        received = await converse(socket, pcm16(babble(2.0)))
    assert [m["code"] for m in received if m["type"] == "error"] == [code]
    assert [m["text"] for m in received if m["type"] == "final"] == [SAID]
    assert received[-1]["type"] == "done" and socket.close_code == 1000


async def test_deepgram(service: Running, code: str) -> None:
    if code == "idle":
        pytest.skip("it has a limit of its own, 10 s")
    query = "encoding=linear16&sample_rate=16000&punctuate=true"
    async with websockets.connect(f"{service.ws}/v1/listen?{query}") as socket:
        received = await converse(socket, pcm16(babble(2.0)))
    texts = [
        m["channel"]["alternatives"][0]["transcript"] for m in received if m["type"] == "Results"
    ]
    assert " ".join(filter(None, texts)) == SAID and received[-1]["type"] == "Metadata"
    assert socket.close_code == 1008 and "at most 1 s" in socket.close_reason


async def test_openai_realtime(service: Running, code: str) -> None:
    audio = base64.b64encode(pcm16(babble(2.0))).decode()
    async with websockets.connect(service.ws + "/v1/realtime") as socket:
        received = await converse(
            socket,
            json.dumps(
                {
                    "type": "session.update",
                    "session": {
                        "type": "transcription",
                        "audio": {"input": {"format": {"type": "audio/pcm", "rate": 24000}}},
                    },
                }
            ),
            json.dumps({"type": "input_audio_buffer.append", "audio": audio}),
        )
    ended = "conversation.item.input_audio_transcription.completed"
    assert [m["type"] for m in received].count(ended) == 1
    assert received[-1]["type"] == "error" and received[-1]["error"]["code"] == code
    assert (socket.close_code, socket.close_reason) == (1008, code)


async def test_vllm(service: Running, code: str) -> None:
    audio = base64.b64encode(pcm16(babble(2.0))).decode()
    async with websockets.connect(service.ws + "/v1/realtime") as socket:
        received = await converse(
            socket,
            json.dumps({"type": "session.update", "model": "counting"}),
            json.dumps({"type": "input_audio_buffer.append", "audio": audio}),
        )
    done, error = received[-2:]
    assert done["type"] == "transcription.done" and done["text"] == SAID
    assert error["type"] == "error" and error["code"] == code
    assert (socket.close_code, socket.close_reason) == (1008, code)


async def test_twilio(service: Running) -> None:
    start = {
        "streamSid": "MZ1",
        "callSid": "CA1",
        "tracks": ["inbound"],
        "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1},
    }
    payload = base64.b64encode(encode_mulaw(babble(2.0)[::2])).decode()
    media = {"track": "inbound", "chunk": "1", "timestamp": "0", "payload": payload}
    async with (
        websockets.connect(service.ws + "/v1/calls/CA1") as reader,
        websockets.connect(service.ws + "/v1/twilio") as socket,
    ):
        reading = asyncio.create_task(converse(reader))
        await converse(
            socket,
            json.dumps({"event": "start", "streamSid": "MZ1", "start": start}),
            json.dumps({"event": "media", "streamSid": "MZ1", "media": media}),
        )
        read = await reading
    assert socket.close_code == 1000
    assert [m["text"] for m in read if m["type"] == "final"] == [SAID]


async def test_whisperlive(service: Running) -> None:
    async with websockets.connect(service.ws + "/v1/whisperlive") as socket:
        received = await converse(socket, '{"uid":"u"}', babble(2.0).tobytes())
    segments = [m["segments"] for m in received if "segments" in m][-1]
    assert segments[-1]["text"] == SAID and received[-1]["message"] == "DISCONNECT"
    assert socket.close_code == 1000
