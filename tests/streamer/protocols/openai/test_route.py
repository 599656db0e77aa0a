"""The transcription endpoints: OpenAI's own SDK, unmodified, and what it would not send."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import numpy as np
import pytest

from engine.api import Task
from tests.support.audio import babble, pcm16, quiet, wav
from tests.support.engines import CountingEngine
from tests.support.running_service import Running, running

openai = pytest.importorskip("openai")
# the SDK says that the vendor will give up translations
pytestmark = pytest.mark.filterwarnings("ignore:deprecated:DeprecationWarning")

TALK = np.concatenate([quiet(1.0), babble(2.0), quiet(2.0), babble(1.5, seed=2), quiet(2.0)])
TEXT = "w2 w3 w4 w5 w10 w11 w12"


@pytest.fixture
async def client(service: Running) -> AsyncIterator[Any]:
    async with openai.AsyncOpenAI(
        base_url=service.http + "/v1", api_key="any", max_retries=0
    ) as client:
        yield client


@pytest.fixture
async def http(service: Running) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=service.http, timeout=30) as client:
        yield client


async def test_the_sdk_gets_json_and_text(client: Any) -> None:
    answer = await client.audio.transcriptions.create(
        file=("talk.wav", wav(TALK)), model="whisper-1"
    )
    assert answer.text == TEXT
    assert answer.usage.type == "duration" and answer.usage.seconds == pytest.approx(8.5)
    text = await client.audio.transcriptions.create(
        file=("talk.wav", wav(TALK)), model="counting", response_format="text"
    )
    assert text == TEXT + "\n"


async def test_verbose_json_has_segments_and_words_as_asked_for(client: Any) -> None:
    answer = await client.audio.transcriptions.create(
        file=("talk.wav", wav(TALK)),
        model="whisper-1",
        response_format="verbose_json",
        timestamp_granularities=["segment", "word"],
    )
    assert (answer.text, answer.language, answer.duration) == (TEXT, "english", 8.5)
    assert [segment.id for segment in answer.segments] == list(range(len(answer.segments)))
    assert "".join(segment.text for segment in answer.segments).strip() == TEXT
    assert answer.segments[0].start == 1.0 and answer.segments[-1].end == 6.5
    assert answer.segments[0].avg_logprob == -0.1
    assert [(w.word, w.start, w.end) for w in answer.words][:2] == [
        ("w2", 1.0, 1.5),
        ("w3", 1.5, 2.0),
    ]
    only_words = await client.audio.transcriptions.create(
        file=("talk.wav", wav(TALK)),
        model="whisper-1",
        response_format="verbose_json",
        timestamp_granularities=["word"],
    )
    assert only_words.segments is None and len(only_words.words) == 7
    plain = await client.audio.transcriptions.create(
        file=("talk.wav", wav(TALK)), model="whisper-1", response_format="verbose_json"
    )
    assert plain.words is None and plain.segments


async def test_subtitles(client: Any) -> None:
    srt = await client.audio.transcriptions.create(
        file=("talk.wav", wav(TALK)), model="whisper-1", response_format="srt"
    )
    assert srt.startswith("1\n00:00:01,000 --> 00:00:0")
    vtt = await client.audio.transcriptions.create(
        file=("talk.wav", wav(TALK)), model="whisper-1", response_format="vtt"
    )
    assert vtt.startswith("WEBVTT\n\n00:00:01.000 --> 00:00:0")


async def test_streaming_gives_deltas_that_add_up_and_one_done(client: Any) -> None:
    stream = await client.audio.transcriptions.create(
        file=("talk.wav", wav(np.tile(TALK, 6))), model="gpt-4o-transcribe", stream=True
    )
    events = [event async for event in stream]
    kinds = [event.type for event in events]
    assert kinds[-1] == "transcript.text.done"
    assert set(kinds[:-1]) == {"transcript.text.delta"} and len(kinds) > 2
    assert "".join(event.delta for event in events[:-1]) == events[-1].text
    assert len(events[-1].text.split()) == 42
    assert events[-1].usage.total_tokens >= events[-1].usage.input_tokens > 0


async def test_translations_and_options_reach_the_engine() -> None:
    engine = CountingEngine()
    async with (
        running(lambda: engine) as service,
        openai.AsyncOpenAI(base_url=service.http + "/v1", api_key="any") as client,
    ):
        answer = await client.audio.translations.create(
            file=("talk.wav", wav(TALK)), model="whisper-1", response_format="verbose_json"
        )
        assert (answer.text, answer.language) == (TEXT, "english")
        assert engine.options[-1].task is Task.TRANSLATE
        await client.audio.transcriptions.create(
            file=("talk.wav", wav(TALK)),
            model="whisper-1",
            language="de",
            temperature=0.4,
            prompt="Namen",
            keywords=["Zürich"],
        )
        options = engine.options[-1]
        assert options.language == "de" and options.task is Task.TRANSCRIBE
        assert options.temperatures == (0.4, 0.6, 0.8, 1.0)
        assert options.hotwords == ("Zürich",)


async def test_logprobs_are_there_when_included(client: Any) -> None:
    answer = await client.audio.transcriptions.create(
        file=("talk.wav", wav(TALK)), model="gpt-4o-transcribe", include=["logprobs"]
    )
    assert "".join(entry.token for entry in answer.logprobs).strip() == TEXT
    assert all(entry.logprob < 0 for entry in answer.logprobs)


async def test_models_are_listed_and_shown(client: Any) -> None:
    names = [model.id async for model in client.models.list()]
    assert names[0] == "counting" and "whisper-1" in names
    assert (await client.models.retrieve("whisper-1")).owned_by == "wordwire"
    with pytest.raises(openai.NotFoundError):
        await client.models.retrieve("gpt-5")


async def test_an_unknown_model_is_404(client: Any) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        await client.audio.transcriptions.create(file=("talk.wav", wav(TALK)), model="large-v9")
    assert caught.value.code == "model_not_found" and caught.value.param == "model"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": "diarized_json"}, "response_format"),
        ({"timestamp_granularities[]": "letter"}, "timestamp_granularities[]"),
        ({"timestamp_granularities[]": "word"}, "response_format"),
        ({"temperature": "warm"}, "temperature"),
        ({"temperature": "7"}, "temperature"),
        ({"temperature": "nan"}, "temperature"),
        ({"language": "klingon"}, "language"),
        ({"stream": "maybe"}, "stream"),
        ({"stream": "true", "response_format": "srt"}, "response_format"),
        ({"chunking_strategy": "[["}, "chunking_strategy"),
        ({"model": ""}, "model"),
    ],
)
async def test_wrong_fields_are_named(
    http: httpx.AsyncClient, fields: dict[str, str], param: str | None
) -> None:
    answer = await http.post(
        "/v1/audio/transcriptions",
        data={"model": "whisper-1", **fields},
        files={"file": ("talk.wav", wav(TALK))},
    )
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error" and error["param"] == param
    assert error["message"]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("text.wav", b"this is text, and no sound at all"),
        ("picture.png", b"\x89PNG\r\n\x1a\n" + bytes(500)),
        ("empty.wav", b""),
        ("first100.mp3", b"\xff\xfb\x90\x64" + bytes(96)),
        ("header.wav", wav(np.zeros(0, np.float32))),
        ("list.m3u8", b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n"),
        ("", b"no name and no sound"),
    ],
)
async def test_what_is_no_audio_is_400(http: httpx.AsyncClient, name: str, data: bytes) -> None:
    boundary = "x" * 20
    body = (
        (
            f'--{boundary}\r\nContent-Disposition: form-data; name="model"\r\n\r\nwhisper-1\r\n'
            f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
            "Content-Type: application/octet-stream\r\n\r\n"
        ).encode()
        + data
        + f"\r\n--{boundary}--\r\n".encode()
    )
    answer = await http.post(
        "/v1/audio/transcriptions",
        content=body,
        headers={"content-type": f"multipart/form-data; boundary={boundary}"},
    )
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "file"


@pytest.mark.parametrize(
    ("headers", "content"),
    [
        ({"content-type": "application/json"}, b"{}"),
        ({"content-type": "multipart/form-data"}, b"x"),
        ({"content-type": "multipart/form-data; boundary=x"}, b"nonsense"),
        ({"content-type": "multipart/form-data; boundary=x"}, b""),
        ({}, b""),
    ],
)
async def test_a_body_that_is_no_form_is_400(
    http: httpx.AsyncClient, headers: dict[str, str], content: bytes
) -> None:
    answer = await http.post("/v1/audio/transcriptions", headers=headers, content=content)
    assert answer.status_code == 400 and answer.json()["error"]["message"]


async def test_a_form_without_a_file_or_with_text_for_it_is_400(http: httpx.AsyncClient) -> None:
    for fields in ({"model": "whisper-1"}, {"model": "whisper-1", "file": "talk.wav"}):
        multipart = {name: (None, value) for name, value in fields.items()}
        answer = await http.post("/v1/audio/transcriptions", files=multipart)
        assert answer.status_code == 400 and answer.json()["error"]["param"] == "file"


async def test_silence_is_empty_text_in_every_format(http: httpx.AsyncClient) -> None:
    expected = {"text": "\n", "srt": "", "vtt": "WEBVTT\n"}
    for kind in ("json", "verbose_json", "text", "srt", "vtt"):
        answer = await http.post(
            "/v1/audio/transcriptions",
            data={"model": "whisper-1", "response_format": kind},
            files={"file": ("zeros.wav", wav(np.zeros(80_000, np.float32)))},
        )
        assert answer.status_code == 200
        if kind in expected:
            assert answer.text == expected[kind]
        else:
            body = json.loads(answer.text, parse_constant=pytest.fail)
            assert body["text"] == "" and body.get("segments", []) == []


async def test_raw_samples_are_known_by_their_name(http: httpx.AsyncClient) -> None:
    answer = await http.post(
        "/v1/audio/transcriptions",
        data={"model": "whisper-1"},
        files={"file": ("talk.pcm", pcm16(TALK))},
    )
    assert answer.json()["text"] == TEXT
