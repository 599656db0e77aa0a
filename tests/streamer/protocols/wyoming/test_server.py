"""The `wyoming` package's client against the running server."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.api import InvalidRequest
from streamer.config import ServerConfig
from streamer.protocols.wyoming.server import serve
from tests.support.audio import babble, pcm16, quiet, silent_wav, wav
from tests.support.documented_example import example_of, run_python
from tests.support.engines import CountingEngine, CountingStream

# the package uses the standard library's audioop, which says that it will go
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
pytest.importorskip("wyoming")

TALK = np.concatenate([quiet(0.5), babble(2.0), quiet(1.5), babble(1.5, seed=2)])
SAID = "w1 w2 w3 w4 w8 w9 w10"


@pytest.fixture
async def engine() -> CountingEngine:
    return CountingEngine()


@pytest.fixture
async def address(engine: CountingEngine) -> AsyncIterator[tuple[str, int]]:
    async with serve(lambda: engine, ServerConfig(port=0)) as server:
        host, port = server.sockets[0].getsockname()[:2]
        yield host, port


async def say(client: Any, audio: bytes, **options: Any) -> list[Any]:
    """Send one utterance; return the events up to transcript-stop."""
    from wyoming.asr import Transcribe
    from wyoming.audio import AudioChunk, AudioStart, AudioStop

    form = {"rate": 16000, "width": 2, "channels": 1}
    await client.write_event(Transcribe(**options).event())
    await client.write_event(AudioStart(**form).event())
    for first in range(0, len(audio), 2048):
        await client.write_event(AudioChunk(**form, audio=audio[first : first + 2048]).event())
    await client.write_event(AudioStop().event())
    received = []
    async with asyncio.timeout(30):
        while not received or received[-1].type not in ("transcript-stop", "error"):
            received.append(await client.read_event())
    return received


async def test_the_packages_client_gets_text_as_it_settles_and_whole(
    address: tuple[str, int],
) -> None:
    from wyoming.asr import Transcript, TranscriptChunk
    from wyoming.client import AsyncTcpClient

    async with AsyncTcpClient(*address) as client:
        for _ in range(2):  # a connection takes any number of utterances
            received = await say(client, pcm16(TALK), language="en")
            kinds = [event.type for event in received]
            assert kinds[0] == "transcript-start"
            assert kinds[-2:] == ["transcript", "transcript-stop"]
            transcript = Transcript.from_event(received[-2])
            assert (transcript.text, transcript.language) == (SAID, "en")
            chunks = [
                TranscriptChunk.from_event(event).text
                for event in received
                if event.type == "transcript-chunk"
            ]
            assert len(chunks) == 2
            assert "".join(chunks).strip() == SAID


async def test_the_service_describes_itself(address: tuple[str, int]) -> None:
    from wyoming.client import AsyncTcpClient
    from wyoming.info import Describe, Info

    async with AsyncTcpClient(*address) as client:
        await client.write_event(Describe().event())
        info = Info.from_event(await client.read_event())
    (program,) = info.asr
    assert program.supports_transcript_streaming
    assert program.installed
    assert program.models[0].languages == ["en", "de", "fr"]


async def test_options_count_for_the_next_utterance_alone(
    address: tuple[str, int], engine: CountingEngine
) -> None:
    from wyoming.client import AsyncTcpClient

    before = len(engine.options)
    async with AsyncTcpClient(*address) as client:
        await say(client, pcm16(TALK), language="German", transcript_names=["Wordwire"])
        first = engine.options[before:]
        await say(client, pcm16(TALK))
        second = engine.options[before + len(first) :]
    assert {(o.language, o.hotwords) for o in first} == {("de", ("Wordwire",))}
    assert ("de" not in {o.language for o in second}) and all(not o.hotwords for o in second)


async def test_silence_has_an_empty_transcript(address: tuple[str, int]) -> None:
    from wyoming.client import AsyncTcpClient

    async with AsyncTcpClient(*address) as client:
        received = await say(client, pcm16(quiet(2.0)))
    assert [event.type for event in received] == [
        "transcript-start",
        "transcript",
        "transcript-stop",
    ]
    assert received[1].data["text"] == ""


async def test_audio_of_another_kind_is_refused_and_the_connection_goes_on(
    address: tuple[str, int],
) -> None:
    from wyoming.audio import AudioStart
    from wyoming.client import AsyncTcpClient

    async with AsyncTcpClient(*address) as client:
        await client.write_event(AudioStart(rate=16000, width=4, channels=1).event())
        event = await client.read_event()
        assert event is not None
        assert event.type == "error"
        assert "width" in event.data["text"]
        wav = await say(client, silent_wav(8_000))
        assert wav[-1].type == "error" and "8000 Hz" in wav[-1].data["text"]
    async with AsyncTcpClient(*address) as client:
        received = await say(client, pcm16(TALK))
        assert received[-2].data["text"] == SAID


@pytest.mark.parametrize(
    "sent",
    [
        b"qwerty\n",
        b"[]\n",
        b'{"type":5}\n',
        b'{"type":"audio-chunk","payload_length":99999999999}\n',
        b'{"type":"audio-chunk","data_length":-1}\n',
        b'{"type":"audio-start","data_length":4}\nqwer',
        b"\xff\xfe\n",
        b"x" * 100_000 + b"\n",
    ],
)
async def test_what_is_no_event_is_answered_and_closed(
    address: tuple[str, int], sent: bytes
) -> None:
    reader, writer = await asyncio.open_connection(*address)
    writer.write(sent)
    async with asyncio.timeout(30):
        answer = await reader.read()
    writer.close()
    assert b'"error"' in answer
    assert b"expected" in answer or b"text" in answer


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidRequest("expected shorter audio"), "refused"),
        (RuntimeError("a bug, which no client is to read"), "internal"),
    ],
)
async def test_what_fails_while_a_client_is_quiet_is_said_at_once(
    engine: CountingEngine, monkeypatch: pytest.MonkeyPatch, error: Exception, code: str
) -> None:
    """A microphone may stay open for long: the next event is not there to carry the error."""

    async def fail(*_: object) -> None:
        raise error

    async with serve(lambda: engine, ServerConfig(port=0)) as server:
        monkeypatch.setattr(CountingStream, "decode", fail)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
        head = b'{"type":"audio-start","data":{"rate":16000,"width":2,"channels":1}}\n'
        audio = pcm16(TALK)
        chunk = {"type": "audio-chunk", "payload_length": len(audio)}
        chunk["data"] = {"rate": 16000, "width": 2, "channels": 1}
        writer.write(head + json.dumps(chunk).encode() + b"\n" + audio)
        async with asyncio.timeout(10):
            answer = json.loads(await reader.readline())
        data = answer.get("data") or json.loads(await reader.readexactly(answer["data_length"]))
        assert answer["type"] == "error" and data["code"] == code
        assert "bug" not in data["text"]
        writer.close()


async def test_a_client_that_vanishes_leaves_nothing_behind(address: tuple[str, int]) -> None:
    reader, writer = await asyncio.open_connection(*address)
    writer.write(b'{"type":"audio-start","data":{"rate":16000,"width":2,"channels":1}}\n')
    await writer.drain()
    await asyncio.sleep(0.1)
    writer.transport.abort()
    del reader
    from wyoming.client import AsyncTcpClient

    async with AsyncTcpClient(*address) as client:
        received = await say(client, pcm16(TALK))
    assert received[-2].data["text"] == SAID


async def test_the_documented_client_works(address: tuple[str, int], tmp_path: Path) -> None:
    path = tmp_path / "talk.wav"
    path.write_bytes(wav(TALK))
    host, port = address
    out = await run_python(example_of("wyoming.md"), host, str(port), str(path))
    assert out.strip() == SAID


@pytest.mark.model
async def test_the_command_serves_until_it_is_stopped() -> None:
    command = [sys.executable, "wordwire.py", "wyoming", "--model", "tiny.en", "--port", "0"]
    process = await asyncio.create_subprocess_exec(
        *command, cwd=Path(__file__).parents[4], stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(120):
            line = b""
            while b"tcp://" not in line:
                line = await process.stderr.readline()
                assert line, "the server stopped"
            host, port = line.decode().strip().rpartition("tcp://")[2].split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(b'{"type":"describe"}\n')
            assert b'"info"' in await reader.readline()
            process.terminate()
            assert await process.wait() == 0
            writer.close()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.parametrize("name", ["api_keys", "api_key_file"])
async def test_keys_that_would_have_no_effect_are_refused(name: str) -> None:
    key = "a-key-for-the-tests-0001"
    config = ServerConfig(port=0, api_keys=(key,) if name == "api_keys" else ())
    if name == "api_key_file":
        config = ServerConfig(port=0, api_key_file="keys.toml")
    with pytest.raises(ValueError, match=name):
        async with serve(CountingEngine, config):
            pass


@pytest.mark.parametrize(("most", "most_of_one"), [(2, 0), (100, 2)])
async def test_connections_are_bounded(most: int, most_of_one: int) -> None:
    config = ServerConfig(port=0, max_connections=most, max_connections_per_address=most_of_one)

    async def ask() -> tuple[bytes, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
        writer.write(b'{"type": "ping"}\n')
        return await asyncio.wait_for(reader.readline(), 30), writer

    async with serve(CountingEngine, config) as server:
        held = [await ask() for _ in range(2)]
        assert all(b"pong" in line for line, _ in held)
        line, refused = await ask()
        assert b"error" in line and b"data_length" in line
        refused.close()
        held[0][1].close()
        for _ in range(1000):  # until its place is free
            line, writer = await ask()
            writer.close()
            if b"pong" in line:
                break
        assert b"pong" in line
        held[1][1].close()


async def test_a_payload_that_no_client_sends_is_refused(address: tuple[str, int]) -> None:
    reader, writer = await asyncio.open_connection(*address)
    writer.write(b'{"type": "audio-chunk", "payload_length": %d}\n' % (2**20 + 1))
    async with asyncio.timeout(30):
        assert b"payload_length" in await reader.read()
    writer.close()


async def test_audio_stop_without_audio_is_an_empty_transcript(address: tuple[str, int]) -> None:
    reader, writer = await asyncio.open_connection(*address)
    writer.write(b'{"type":"transcribe"}\n{"type":"audio-stop"}\n{"type":"ping"}\n')
    async with asyncio.timeout(10):
        answer = await reader.readuntil(b"pong")
    writer.close()
    assert b'"transcript"' in answer and b'{"text": ""}' in answer and b"transcript-stop" in answer
