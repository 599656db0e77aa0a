"""Faults that users of such services reported, provoked through the vendors' protocols."""

from __future__ import annotations

import asyncio
import io
import json
from typing import Any

import av
import httpx
import numpy as np
import pytest
import websockets

from engine.api import Samples
from tests.support.audio import babble, pcm16, quiet, wav
from tests.support.running_service import Running

TALK = np.concatenate([quiet(1.0), babble(2.0), quiet(2.0), babble(1.5, seed=2)])
SAID = "w2 w3 w4 w5 w10 w11 w12"


async def deepgram(service: Running, parts: list[bytes], query: str) -> list[Any]:
    url = f"{service.ws}/v1/listen?punctuate=true&{query}"
    async with websockets.connect(url, max_size=None) as socket:
        for part in parts:
            await socket.send(part)
        await socket.send('{"type":"CloseStream"}')
        return [json.loads(message) async for message in socket]


async def whisperlive(service: Running, audio: bytes, **options: Any) -> list[Any]:
    async with websockets.connect(service.ws) as socket:
        await socket.send(json.dumps({"uid": "u", **options}))
        for first in range(0, len(audio), 16_384):
            await socket.send(audio[first : first + 16_384])
        await socket.send(b"END_OF_AUDIO")
        return [json.loads(message) async for message in socket]


def text_of(messages: list[Any]) -> str:
    finals = [m for m in messages if m.get("type") == "Results" and m["is_final"]]
    parts = [m["channel"]["alternatives"][0]["transcript"] for m in finals]
    return " ".join(part for part in parts if part)


def segments_of(messages: list[Any]) -> str:
    segments = [m["segments"] for m in messages if "segments" in m][-1]
    return " ".join(segment["text"].strip() for segment in segments)


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[first : first + size] for first in range(0, len(data), size)]


def packed(
    samples: Samples, container: str, codec: str, rate: int = 48_000, packet_ms: int = 20
) -> bytes:
    """Encode to a container, as a stream that nobody can seek in."""
    buffer = io.BytesIO()
    options = {"live": "1", "cluster_time_limit": "60"} if container == "webm" else {}
    with av.open(buffer, "w", format=container, options=options) as out:
        lengths = {"frame_duration": str(packet_ms)} if codec == "libopus" else {}
        stream = out.add_stream(codec, rate=rate, layout="mono", options=lengths)
        resampler = av.AudioResampler(format=stream.format, layout="mono", rate=rate)
        frame = av.AudioFrame.from_ndarray(
            (samples * 32767).astype(np.int16)[None, :], format="s16", layout="mono"
        )
        frame.sample_rate = 16_000
        for piece in [*resampler.resample(frame), *resampler.resample(None)]:
            out.mux(stream.encode(piece))
        out.mux(stream.encode(None))
    return buffer.getvalue()


CONTAINERS = {
    "webm": ("webm", "libopus", 48_000),
    "ogg": ("ogg", "libopus", 48_000),
    "flac": ("flac", "flac", 16_000),
    "mp3": ("mp3", "libmp3lame", 48_000),
    "adts": ("adts", "aac", 48_000),
}


@pytest.mark.parametrize("name", list(CONTAINERS))
async def test_containers_are_decoded_as_they_arrive(service: Running, name: str) -> None:
    data = packed(TALK, *CONTAINERS[name])
    messages = await deepgram(service, cut(data, 4000), "")
    # lossy codecs smear the edges of what is said by some milliseconds
    said = set(text_of(messages).split())
    assert said >= set(SAID.split()) and len(said) <= len(SAID.split()) + 2, said


async def test_a_piece_of_webm_without_its_head_is_no_audio(service: Running) -> None:
    pieces = cut(packed(TALK, *CONTAINERS["webm"]), 4000)
    messages = []
    async with websockets.connect(f"{service.ws}/v1/listen") as socket:
        await socket.send(pieces[2])
        await socket.send('{"type":"CloseStream"}')
        with pytest.raises(websockets.ConnectionClosedError):
            while True:
                messages.append(json.loads(await asyncio.wait_for(socket.recv(), 30)))
    assert socket.close_code == 1008
    assert messages[-1]["code"] == "DATA-0000"
    async with httpx.AsyncClient(base_url=service.http) as client:
        response = await client.post("/v1/listen", content=pieces[2])
    assert response.status_code == 400


async def test_webm_with_packets_of_60_ms_is_heard_whole_and_in_pieces(service: Running) -> None:
    data = packed(TALK, "webm", "libopus", packet_ms=60)
    pieces = cut(data, 4000)
    texts = [text_of(await deepgram(service, pieces, ""))]
    async with httpx.AsyncClient(base_url=service.http) as client:

        async def post(content: bytes) -> httpx.Response:
            form, files = {"model": "whisper-1"}, {"file": ("rec.webm", content)}
            return await client.post("/v1/audio/transcriptions", data=form, files=files)

        texts.append((await post(data)).json()["text"])
        alone = await post(pieces[1])
    assert alone.status_code == 400 and alone.json()["error"]["code"] == "invalid_audio"
    for text in texts:
        said = set(text.split())
        assert said >= set(SAID.split()) and len(said) <= len(SAID.split()) + 2, said


async def test_a_webm_recording_is_not_delayed_by_its_length(service: Running) -> None:
    pieces = cut(packed(TALK, *CONTAINERS["webm"]), 1000)
    async with websockets.connect(f"{service.ws}/v1/listen?interim_results=true") as socket:
        for piece in pieces[: len(pieces) * 3 // 4]:
            await socket.send(piece)
        message = json.loads(await asyncio.wait_for(socket.recv(), 30))
    assert message["channel"]["alternatives"][0]["transcript"].startswith("w2")


@pytest.mark.parametrize("extra", [b"", b"LIST" + (2048).to_bytes(4, "little") + bytes(2048)])
async def test_a_wav_file_sent_as_raw_samples_loses_its_header(
    service: Running, extra: bytes
) -> None:
    plain = wav(TALK)
    data = plain[:36] + extra + plain[36:]  # in front of the data chunk
    messages = await deepgram(service, cut(data, 4096), "encoding=linear16&sample_rate=16000")
    assert text_of(messages) == SAID
    assert messages[-1]["duration"] == pytest.approx(6.5, abs=0.01)


async def test_a_wav_header_that_contradicts_the_query_is_an_error(service: Running) -> None:
    url = f"{service.ws}/v1/listen?encoding=linear16&sample_rate=8000"
    messages = []
    async with websockets.connect(url) as socket:
        await socket.send(wav(TALK))
        with pytest.raises(websockets.ConnectionClosedError):
            while True:
                messages.append(json.loads(await asyncio.wait_for(socket.recv(), 30)))
    assert socket.close_code == 1008
    assert "16000" in messages[-1]["description"]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e30])
async def test_a_bad_float_spoils_nothing(service: Running, bad: float) -> None:
    samples = TALK.astype("<f4").copy()
    samples[24_000] = bad
    messages = await deepgram(
        service, cut(samples.tobytes(), 4096), "encoding=linear32&sample_rate=16000"
    )
    assert text_of(messages) == SAID
    assert segments_of(await whisperlive(service, samples.tobytes())) == SAID


@pytest.mark.parametrize("tail_ms", [0, 7, 15, 29, 31, 333, 499])
@pytest.mark.parametrize("size", [640, 4096])
async def test_no_tail_is_thrown_away(service: Running, tail_ms: int, size: int) -> None:
    samples = np.concatenate([quiet(0.5), babble(2.0), quiet(tail_ms / 1000)])
    query = "encoding=linear16&sample_rate=16000"
    assert text_of(await deepgram(service, cut(pcm16(samples), size), query)) == "w1 w2 w3 w4"


async def test_speech_that_stops_without_an_end_is_final_soon(service: Running) -> None:
    url = f"{service.ws}/v1/listen?encoding=linear16&sample_rate=16000&punctuate=true"
    async with websockets.connect(url) as socket:
        for part in cut(pcm16(babble(2.0)), 6400):
            await socket.send(part)
            await asyncio.sleep(0.02)
        # how soon is tested with the session, whose clock no machine disturbs
        message = json.loads(await asyncio.wait_for(socket.recv(), 30))
        assert message["is_final"]
        assert message["channel"]["alternatives"][0]["transcript"] == "w0 w1 w2 w3"
        for part in cut(pcm16(np.concatenate([quiet(1.0), babble(1.0)])), 6400):
            await socket.send(part)
        await socket.send('{"type":"CloseStream"}')
        rest = [json.loads(text) async for text in socket]
    assert text_of(rest) == "w6 w7"


async def test_a_reconnecting_client_never_sees_its_old_words(service: Running) -> None:
    old, new = pcm16(babble(3.0)), pcm16(np.concatenate([quiet(4.0), babble(1.0)]))
    url = f"{service.ws}/v1/listen?encoding=linear16&sample_rate=16000&interim_results=true"
    for _ in range(10):
        socket = await websockets.connect(url)
        await socket.send(old)
        socket.transport.abort()
        messages = await deepgram(
            service, cut(new, 32_000), "encoding=linear16&sample_rate=16000&interim_results=true"
        )
        assert text_of(messages) == "w8 w9"
        texts = [
            m["channel"]["alternatives"][0]["transcript"]
            for m in messages
            if m["type"] == "Results"
        ]
        assert not any("w0" in text for text in texts)


async def test_options_of_one_client_are_not_anothers(service: Running) -> None:
    engine: Any = service.service._engine
    before = len(engine.options)

    async def one(number: int) -> tuple[str, str]:
        name, language = f"Name{number}", ("en", "de", "fr")[number % 3]
        query = f"encoding=linear16&sample_rate=16000&keyterm={name}&language={language}"
        messages = await deepgram(service, cut(pcm16(babble(1.0)), 6400), query)
        assert text_of(messages) == "w0 w1"
        return language, name

    expected = await asyncio.gather(*(one(number) for number in range(8)))
    seen = {(o.language, o.hotwords) for o in engine.options[before:]}
    assert seen == {(language, (name,)) for language, name in expected}


async def test_opus_packets_come_one_to_a_message(service: Running) -> None:
    encoder = av.CodecContext.create("libopus", "w")
    encoder.sample_rate, encoder.layout, encoder.format = 48_000, "mono", "s16"
    sound = np.repeat((TALK * 32767).astype(np.int16), 3)  # crude, and good enough for a detector
    packets = []
    for first in range(0, len(sound) - 960, 960):
        frame = av.AudioFrame.from_ndarray(
            sound[None, first : first + 960], format="s16", layout="mono"
        )
        frame.sample_rate, frame.pts = 48_000, first
        packets += [bytes(packet) for packet in encoder.encode(frame)]
    messages = await deepgram(service, packets, "encoding=opus&sample_rate=48000")
    said = set(text_of(messages).split())
    assert said >= set(SAID.split()[:-1]) and len(said) <= len(SAID.split()) + 2, said
