"""WhisperLive's own Python client, unmodified, against the running service."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import websockets

from streamer.config import ServerConfig
from tests.support.audio import babble, pcm16, quiet, wav
from tests.support.documented_example import example_of, run_python
from tests.support.running_service import Running, running

TALK = np.concatenate([quiet(1.0), babble(2.0), quiet(2.0), babble(1.5, seed=2)])
SAID = ["w2 w3 w4 w5", "w10 w11 w12"]


@pytest.fixture
def talk(tmp_path: Path) -> str:
    path = tmp_path / "talk.wav"
    path.write_bytes(wav(TALK))
    return str(path)


async def test_the_documented_client_works(
    service: Running, whisperlive_path: str, talk: str
) -> None:
    out = await run_python(
        example_of("whisperlive.md"), service.host, str(service.port), talk, path=whisperlive_path
    )
    # in brackets it logs: that it connected, and that the server closed (1000, normally)
    assert [line for line in out.splitlines() if not line.startswith("[")] == SAID
    assert "1000" in out


FILE_CLIENT = """
import sys
from whisper_live.client import TranscriptionClient

client = TranscriptionClient(
    sys.argv[1], int(sys.argv[2]), lang="en", mute_audio_playback=True, log_transcription=False,
    output_transcription_path=sys.argv[4],
)
client.client.disconnect_if_no_response_for = 3
print("TEXT", client(sys.argv[3]))
"""


async def test_the_file_client_writes_right_subtitles(
    service: Running, whisperlive_path: str, talk: str, tmp_path: Path
) -> None:
    subtitles = tmp_path / "out.srt"
    out = await run_python(
        FILE_CLIENT,
        service.host,
        str(service.port),
        talk,
        str(subtitles),
        path=whisperlive_path,
        cwd=tmp_path,
    )
    assert f"TEXT {' '.join(SAID)}" in out
    cues = [block.split("\n") for block in subtitles.read_text().strip().split("\n\n")]
    assert [cue[2].strip() for cue in cues] == SAID
    for cue, start in zip(cues, (1.0, 5.0), strict=True):
        hours, minutes, seconds = cue[1].split(" --> ")[0].replace(",", ".").split(":")
        assert int(hours) * 3600 + int(minutes) * 60 + float(seconds) == pytest.approx(
            start, abs=0.5
        )


async def talk_to(
    service: Running, audio: bytes, *, path: str = "/", chunk: int = 4096, **options: Any
) -> tuple[list[Any], Any]:
    async with websockets.connect(service.ws + path) as socket:
        await socket.send(json.dumps({"uid": "u1", **options}))
        for first in range(0, len(audio), chunk):
            await socket.send(audio[first : first + chunk])
        await socket.send(b"END_OF_AUDIO")
        return [json.loads(message) async for message in socket], socket


def last_segments(messages: list[Any]) -> list[Any]:
    return [m["segments"] for m in messages if "segments" in m][-1]


ENCODED = {
    "float32": TALK.astype("<f4").tobytes(),
    "int16": pcm16(TALK),
    "uint8": (np.clip(TALK * 128, -128, 127) + 128).astype(np.uint8).tobytes(),
}


@pytest.mark.parametrize("audio_format", list(ENCODED))
@pytest.mark.parametrize("path", ["/", "/v1/whisperlive"])
async def test_all_formats_and_paths(service: Running, path: str, audio_format: str) -> None:
    messages, socket = await talk_to(
        service, ENCODED[audio_format], path=path, chunk=4097, audio_format=audio_format
    )
    assert messages[0] == {"uid": "u1", "message": "SERVER_READY", "backend": "faster_whisper"}
    assert all(m["uid"] == "u1" for m in messages)
    segments = last_segments(messages)
    assert [s["text"].strip() for s in segments] == SAID
    assert all(s["completed"] for s in segments)
    assert {"uid": "u1", "language": "en", "language_prob": 0.9} in messages or any(
        m.get("language") == "en" for m in messages
    )
    assert socket.close_code == 1000


async def test_the_page_stays_at_the_same_path(service: Running) -> None:
    reader, writer = await asyncio.open_connection(service.host, service.port)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 200") or answer.startswith(b"HTTP/1.1 404")
    assert b"Upgrade" not in answer.split(b"\r\n")[0]


async def test_a_full_service_asks_to_wait(whisperlive_path: str, talk: str) -> None:
    async with running(config=ServerConfig(port=0, max_sessions=1)) as service:
        async with websockets.connect(service.ws) as first:
            await first.send("{}")
            await first.recv()
            messages, socket = await talk_to(service, b"")
            assert messages[0]["status"] == "WAIT"
            assert 0 < messages[0]["message"] < 10
            assert socket.close_code == 1000
            code = FILE_CLIENT.replace("print(", "client.client.waiting or print(")
            out = await run_python(
                code, service.host, str(service.port), talk, "out.srt", path=whisperlive_path
            )
            assert "Server is full" in out


@pytest.mark.parametrize(
    "hello",
    [
        "qwerty",
        "[]",
        '{"task":"sing"}',
        # the reason of a close frame has few bytes, and these have many
        json.dumps({"task": "歌" * 40}, ensure_ascii=False),
        '{"audio_format":"mp3"}',
        b"\x00\x00",
    ],
)
async def test_a_wrong_first_message_is_answered(service: Running, hello: str | bytes) -> None:
    async with websockets.connect(service.ws) as socket:
        await socket.send(hello)
        answer = json.loads(await asyncio.wait_for(socket.recv(), 30))
        assert answer["status"] == "ERROR"
        assert "expected" in answer["message"]
        await asyncio.wait_for(socket.wait_closed(), 30)
    assert socket.close_code == 1008


async def test_text_among_the_audio_is_answered_and_the_session_goes_on(service: Running) -> None:
    async with websockets.connect(service.ws) as socket:
        await socket.send('{"uid":"u1"}')
        await socket.send("{")
        await socket.send(babble(1.0).tobytes())
        await socket.send("END_OF_AUDIO")
        messages = [json.loads(message) async for message in socket]
    assert [m["status"] for m in messages if "status" in m] == ["WARNING"]
    assert last_segments(messages)[0]["text"].strip() == "w0 w1"


async def test_what_is_not_served_is_said(service: Running) -> None:
    messages, _ = await talk_to(service, b"", enable_translation=True, enable_diarization=True)
    assert [m["status"] for m in messages if "status" in m] == ["WARNING", "WARNING"]


async def test_the_time_limit_delivers_then_disconnects() -> None:
    async with running(config=ServerConfig(port=0, max_session_s=0.5)) as service:
        async with websockets.connect(service.ws) as socket:
            await socket.send('{"uid":"u1"}')
            await socket.send(babble(1.0).tobytes())
            messages = [json.loads(message) async for message in socket]
    assert messages[-1] == {"uid": "u1", "message": "DISCONNECT"}
    assert last_segments(messages)[0]["completed"]


async def test_a_second_segment_never_starts_before_the_end_of_the_first(service: Running) -> None:
    messages, _ = await talk_to(service, ENCODED["float32"])
    for message in messages:
        end = 0.0
        for segment in message.get("segments", []):
            assert end <= float(segment["start"]) < float(segment["end"])
            end = float(segment["end"])


async def test_a_service_that_stops_delivers_then_disconnects() -> None:
    async with running(config=ServerConfig(port=0, drain_timeout_s=5)) as service:
        messages = []
        async with websockets.connect(service.ws) as socket:
            await socket.send('{"uid":"u1"}')
            await socket.send(babble(2.0).tobytes())
            await service.wait_heard(2.0)
            draining = asyncio.create_task(service.service.drain())
            with pytest.raises(websockets.ConnectionClosed):
                while True:
                    messages.append(json.loads(await asyncio.wait_for(socket.recv(), 30)))
            await asyncio.wait_for(draining, 30)
    assert last_segments(messages)[0]["text"] == "w0 w1 w2 w3"
    assert messages[-1] == {"uid": "u1", "message": "DISCONNECT"}
    assert socket.close_code == 1012
