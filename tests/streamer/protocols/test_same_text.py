"""One clip through every protocol, by the vendors' own clients: the same text."""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import soundfile
import soxr
import websockets

from clients import call, telephone
from engine.api import Engine, Samples
from streamer.config import ServerConfig
from streamer.protocols.wyoming.server import serve as serve_wyoming
from tests.support import deepgram_sdk
from tests.support.audio import pcm16, wav
from tests.support.documented_example import example_of, run_python
from tests.support.running_service import Running
from tests.support.words import plain_words

deepgram = pytest.importorskip("deepgram")
openai = pytest.importorskip("openai")

pytestmark = [
    pytest.mark.model,
    # Deepgram's SDK and wyoming ask for modules that say they are deprecated
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.fixture
def served_engine(base_engine: Engine) -> Engine:
    return base_engine


# no context changes a word of it, only commas; of jfk.wav, "asked not" settles before the rest is
# heard, where a whole file has "ask not"
CLIP = "ls_1995-1837-0001.flac"
CALL = "ast_vm-opts-full.ulaw.wav"


def joined(texts: Iterable[str]) -> str:
    return " ".join(text.strip() for text in texts if text.strip())


async def by_stream(service: Running, audio: bytes, query: str) -> str:
    async with websockets.connect(f"{service.ws}/v1/stream?{query}") as socket:
        for first in range(0, len(audio), 8000):
            await socket.send(audio[first : first + 8000])
        await socket.send('{"type":"end"}')
        messages = [json.loads(text) async for text in socket]
    return joined(m["text"] for m in messages if m["type"] == "final")


async def by_call(service: Running, audio: bytes) -> str:
    size = telephone.CHUNK_BYTES
    chunks = [(audio[i : i + size],) for i in range(0, len(audio), size)]
    async with websockets.connect(f"{service.ws}/v1/twilio") as line:
        for message in telephone.opening("CA1", "MZ1", ["inbound"], {}):
            await line.send(message)
        for message in telephone.media("MZ1", ["inbound"], chunks):
            await line.send(message)
        await line.send(telephone.closing("CA1", "MZ1"))
        await line.wait_closed()
    async with websockets.connect(f"{service.ws}/v1/calls/CA1") as log:
        messages = [json.loads(text) async for text in log]
    return joined(m["text"] for m in messages if m["type"] == "final")


async def by_realtime(service: Running, samples: Samples) -> str:
    """Return the text by OpenAI's own client, of audio at 24 kHz."""
    client = openai.AsyncOpenAI(api_key="none", base_url=f"{service.http}/v1")
    audio = pcm16(soxr.resample(samples, 16_000, 24_000).astype(np.float32))
    texts = []
    async with client.realtime.connect(extra_query={"intent": "transcription"}) as connection:
        await connection.send(
            {
                "type": "session.update",
                "session": {
                    "type": "transcription",
                    "audio": {"input": {"turn_detection": None}},
                },
            }
        )
        await connection.input_audio_buffer.append(audio=base64.b64encode(audio).decode())
        await connection.input_audio_buffer.commit()
        async for event in connection:
            if event.type == "conversation.item.input_audio_transcription.completed":
                texts.append(event.transcript)
                break
    return joined(texts)


async def by_posts(service: Running, path: str) -> tuple[str, str]:
    """Return the text of the file by Deepgram's and by OpenAI's address."""
    content = await asyncio.to_thread(Path(path).read_bytes)
    async with httpx.AsyncClient(base_url=service.http, timeout=120) as client:
        first = await client.post("/v1/listen?punctuate=true", content=content)
        second = await client.post(
            "/v1/audio/transcriptions",
            data={"model": "whisper-1"},
            files={"file": ("clip.wav", content)},
        )
    alternative = first.json()["results"]["channels"][0]["alternatives"][0]
    return alternative["transcript"], second.json()["text"]


@pytest.mark.timeout(400)
async def test_one_clip_has_one_text(
    service: Running,
    base_engine: Engine,
    recordings: list[Any],
    whisperlive_path: str,
    tmp_path: Path,
) -> None:
    clip = next(recording for recording in recordings if recording.path.name == CLIP)
    samples = clip.read()
    audio, path = pcm16(samples), str(tmp_path / "clip.wav")
    Path(path).write_bytes(wav(samples))
    address = (service.host, str(service.port))

    texts = {
        "stream": await by_stream(service, audio, "encoding=pcm_s16le&sample_rate=16000"),
        "deepgram": deepgram_sdk.text(await deepgram_sdk.listen(service, audio)),
        "realtime at 24 kHz": await by_realtime(service, samples),
    }
    out = await run_python(example_of("deepgram.md"), ":".join(address), path, timeout_s=120)
    texts["deepgram's documented client"] = joined(out.splitlines())
    out = await run_python(
        example_of("whisperlive.md"), *address, path, path=whisperlive_path, timeout_s=120
    )
    lines = (line for line in out.splitlines() if not line.startswith("["))
    texts["whisperlive"] = joined(lines)
    async with serve_wyoming(lambda: base_engine, ServerConfig(port=0)) as server:
        host, port = server.sockets[0].getsockname()[:2]
        english = example_of("wyoming.md").replace('Transcribe(language="en")', "Transcribe()")
        texts["wyoming"] = await run_python(english, host, str(port), path, timeout_s=120)
    texts["deepgram's file"], texts["openai's file"] = await by_posts(service, path)
    expected = plain_words(clip.text)
    assert {way: plain_words(text) for way, text in texts.items()} == dict.fromkeys(texts, expected)


async def test_a_telephone_call_has_one_text(service: Running, recordings: list[Any]) -> None:
    clip = next(recording for recording in recordings if recording.path.name == CALL)
    samples, rate = soundfile.read(clip.path, dtype="float32")
    assert rate == 8_000
    audio = telephone.encode_mulaw(samples)
    texts = {
        "stream": await by_stream(service, audio, "encoding=mulaw&sample_rate=8000"),
        "twilio": await by_call(service, audio),
        "deepgram": deepgram_sdk.text(
            await deepgram_sdk.listen(service, audio, encoding="mulaw", sample_rate=8000)
        ),
    }
    texts["deepgram's file"], texts["openai's file"] = await by_posts(service, str(clip.path))
    expected = plain_words(texts["stream"])
    assert len(expected) > 15
    assert {way: plain_words(text) for way, text in texts.items()} == dict.fromkeys(texts, expected)


async def test_both_sides_of_a_call_are_heard_through_a_bad_network(
    service: Running, recordings: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clip = next(recording for recording in recordings if recording.path.name == "ivr_call_a.wav")
    samples, rate = soundfile.read(clip.path, frames=8_000 * 17)
    path = tmp_path / "call.wav"
    soundfile.write(path, samples, rate)
    parser = argparse.ArgumentParser()
    call.add_arguments(parser)
    words = ["--url", service.http, str(path), "--fast", "--json", "--shuffle", "12"]
    assert await asyncio.to_thread(call.run, parser.parse_args([*words, "--language", "en"])) == 0
    messages = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    said = {
        track: joined(m["text"] for m in messages if m["type"] == "final" and m["track"] == track)
        for track in telephone.TRACKS
    }
    assert plain_words(said["inbound"])[:6] == "that agent is already logged on".split()
    # the manifest's "five two six zero one eight one five nine zero" lies in these 17 s
    assert re.findall(r"\d", said["outbound"]) == list("5260181590")
    for message in messages:
        for word in message.get("words", []):
            assert message["start"] <= word["start"] < word["end"] <= message["end"]
    assert messages[-1]["lost_chunks"] == 0
