"""Real speech through OpenAI's own SDK: files, streams, and the same text by every way."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soxr
import websockets

from engine.api import Engine
from tests.support.audio import pcm16
from tests.support.running_service import Running
from tests.support.words import plain_words

openai = pytest.importorskip("openai")

pytestmark = [
    pytest.mark.model,
    pytest.mark.timeout(400),  # a machine that is slow, or shared, decodes some of it for a minute
    # the SDK says that the vendor will give up translations
    pytest.mark.filterwarnings("ignore:deprecated:DeprecationWarning"),
]

TRANSCRIPTION = "conversation.item.input_audio_transcription"


@pytest.fixture
def served_engine(base_engine: Engine) -> Engine:
    return base_engine


@pytest.fixture
async def client(service: Running) -> AsyncIterator[Any]:
    async with openai.AsyncOpenAI(base_url=service.http + "/v1", api_key="any") as client:
        yield client


@pytest.fixture
def jfk(recordings: list[Any]) -> Any:
    return next(r for r in recordings if r.path.name == "jfk_flac_16k.flac")


def error_rate(reference: str, text: str) -> float:
    jiwer = pytest.importorskip("jiwer")
    return float(jiwer.wer(" ".join(plain_words(reference)), " ".join(plain_words(text))))


async def by_realtime(client: Any, samples: np.ndarray, **source: Any) -> list[Any]:
    """Stream 24 kHz PCM in pieces of 100 ms, commit, and return what came."""
    data = pcm16(soxr.resample(samples, 16_000, 24_000))
    events: list[Any] = []
    async with client.realtime.connect(extra_query={"intent": "transcription"}) as connection:
        await connection.session.update(
            session={"type": "transcription", "audio": {"input": source}}
        )
        for at in range(0, len(data), 4800):
            audio = base64.b64encode(data[at : at + 4800]).decode()
            await connection.input_audio_buffer.append(audio=audio)
        await connection.input_audio_buffer.commit()
        async with asyncio.timeout(150):
            while not any(event.type == f"{TRANSCRIPTION}.completed" for event in events):
                events.append(await connection.recv())
    return events


async def by_stream(service: Running, samples: np.ndarray) -> str:
    url = service.ws + "/v1/stream?encoding=pcm_s16le&sample_rate=16000&language=en"
    async with websockets.connect(url) as socket:
        data = pcm16(samples)
        for at in range(0, len(data), 3200):
            await socket.send(data[at : at + 3200])
        await socket.send('{"type": "end"}')
        messages = [json.loads(message) async for message in socket]
    return " ".join(m["text"] for m in messages if m["type"] == "final" and m["text"])


async def test_a_clip_is_read_alike_by_every_way(
    service: Running, client: Any, recordings: list[Any]
) -> None:
    # no context changes a word of it, only commas
    clip = next(r for r in recordings if r.path.name == "ls_1995-1837-0001.flac")
    samples = clip.read()
    answer = await client.audio.transcriptions.create(
        file=clip.path, model="whisper-1", language="en"
    )
    events = await by_realtime(
        client, samples, turn_detection=None, transcription={"language": "en"}
    )
    streamed = await by_stream(service, samples)
    realtime = events[-1].transcript
    expected = plain_words(clip.text)
    assert [plain_words(text) for text in (answer.text, realtime, streamed)] == [expected] * 3
    deltas = [event.delta for event in events if event.type == f"{TRANSCRIPTION}.delta"]
    assert "".join(deltas) == realtime


async def test_every_container_gives_the_text(client: Any, recordings: list[Any]) -> None:
    names = (
        "jfk_webm_live.webm jfk_m4a_aac.m4a jfk_mp3_vbr_id3.mp3 jfk_ogg_opus_48k.opus "
        "jfk_video.mp4 weather_phase_inverted_stereo.wav weather_right_only_16k.flac "
        "weather_5.1_48k.flac 8_channel_id.m4a weather_raw_s16le_16k.pcm"
    ).split()
    for recording in recordings:
        if recording.path.name in names:
            answer = await client.audio.transcriptions.create(file=recording.path, model="base")
            assert error_rate(recording.text, answer.text) <= 0.3, (recording.path, answer.text)


async def test_verbose_segments_and_words_lie_within_the_sound(client: Any, jfk: Any) -> None:
    answer = await client.audio.transcriptions.create(
        file=jfk.path,
        model="whisper-1",
        response_format="verbose_json",
        timestamp_granularities=["word", "segment"],
    )
    assert (answer.language, answer.duration) == ("english", pytest.approx(11.0, abs=0.1))
    assert "".join(segment.text for segment in answer.segments).strip() == answer.text
    assert all(segment.tokens and segment.avg_logprob < 0 for segment in answer.segments)
    times = [time for word in answer.words for time in (word.start, word.end)]
    assert times == sorted(times) and 0 <= times[0] and times[-1] <= 11.0
    assert plain_words(" ".join(word.word for word in answer.words)) == plain_words(answer.text)


async def test_languages_are_found_and_translated(client: Any, recordings: list[Any]) -> None:
    german = next(r for r in recordings if r.path.name == "de_pv_leopard_de.flac")
    answer = await client.audio.transcriptions.create(
        file=german.path, model="whisper-1", response_format="verbose_json"
    )
    assert answer.language == "german" and error_rate(german.text, answer.text) < 0.35
    translated = await client.audio.translations.create(file=german.path, model="whisper-1")
    english = {"the", "and", "of", "a", "to", "in", "is"}
    assert english & set(plain_words(translated.text)), translated.text


async def test_long_speech_streams_and_joins_without_seams(
    client: Any, recordings: list[Any]
) -> None:
    chapter = next(r for r in recordings if r.path.name == "lj001_chapter.mp3")
    stream = await client.audio.transcriptions.create(
        file=chapter.path, model="gpt-4o-transcribe", stream=True
    )
    events = [event async for event in stream]
    text = events[-1].text
    assert "".join(event.delta for event in events[:-1]) == text
    assert len(events) > 5
    assert error_rate(chapter.text, text) < 0.15
    assert "  " not in text and text == text.strip()
    assert not re.search(r"[a-z]{2}[.?!][a-z]", text) and "<|" not in text


async def test_silence_and_music_have_no_text(client: Any, recordings: list[Any]) -> None:
    for name in ("nan_inf_float.wav", "one_sample.wav"):
        recording = next(r for r in recordings if r.path.name == name)
        answer = await client.audio.transcriptions.create(
            file=Path(recording.path), model="whisper-1", response_format="verbose_json"
        )
        assert answer.text == "" and answer.segments == []
