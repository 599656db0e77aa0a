"""The transcription endpoints: OpenAI's own SDK, unmodified, and what it would not send."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import httpx
import numpy as np
import pytest
import websockets

from engine.api import Task
from streamer.config import ServerConfig
from tests.support.audio import babble, pcm16, quiet, wav
from tests.support.engines import CountingEngine
from tests.support.running_service import Running, running
from tests.support.waiting import until

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
        ({"temperature": "7"}, None),
        ({"temperature": "nan"}, None),
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


class _Blocking(CountingEngine):
    """Never answers; counts how many decodes are in flight."""

    def __init__(self) -> None:
        super().__init__()
        self.num_decoding = 0
        self.is_warm = False

    def stream(self, options: Any) -> Any:
        outer, stream = self, super().stream(options)

        class Stream:
            async def decode(self, window: Any) -> Any:
                if not outer.is_warm:
                    outer.is_warm = window.is_final
                    async with stream as inner:
                        return await inner.decode(window)
                outer.num_decoding += 1
                try:
                    await asyncio.Event().wait()
                finally:
                    outer.num_decoding -= 1

        class Manager:
            async def __aenter__(self) -> Stream:
                return Stream()

            async def __aexit__(self, *_: object) -> None:
                return None

        return Manager()


async def test_work_stops_when_the_client_leaves() -> None:
    engine = _Blocking()
    async with running(lambda: engine) as service:
        async with httpx.AsyncClient(base_url=service.http) as http:
            request = asyncio.create_task(
                http.post(
                    "/v1/audio/transcriptions",
                    data={"model": "whisper-1"},
                    files={"file": ("talk.wav", wav(TALK))},
                )
            )
            async with asyncio.timeout(30):
                while not engine.num_decoding:
                    await asyncio.sleep(0.01)
                request.cancel()
                await asyncio.gather(request, return_exceptions=True)
        await until(lambda: not engine.num_decoding)


class _Counted(CountingEngine):
    """Takes its time, and notes how many windows of files were decoded at once."""

    def __init__(self) -> None:
        super().__init__()
        self.num_decoding = 0
        self.most = 0

    def stream(self, options: Any) -> Any:
        @contextlib.asynccontextmanager
        async def opened() -> AsyncIterator[Any]:
            async with outer as inner:
                yield Stream(inner)

        counted, outer = self, super().stream(options)

        class Stream:
            def __init__(self, inner: Any) -> None:
                self._inner = inner

            async def decode(self, window: Any) -> Any:
                counted.num_decoding += 1
                counted.most = max(counted.most, counted.num_decoding)
                try:
                    await asyncio.sleep(0.4)
                    return await self._inner.decode(window)
                finally:
                    counted.num_decoding -= 1

        return opened()


async def test_a_file_makes_way_for_those_who_speak() -> None:
    engine = _Counted()
    async with (
        running(lambda: engine) as service,
        openai.AsyncOpenAI(base_url=service.http + "/v1", api_key="any") as client,
    ):
        for is_someone_speaking in (False, True):
            engine.most = 0
            async with contextlib.AsyncExitStack() as stack:
                if is_someone_speaking:
                    url = service.ws + "/v1/stream?language=en"
                    socket = await stack.enter_async_context(websockets.connect(url))
                    assert json.loads(await socket.recv())["type"] == "ready"
                answer = await client.audio.transcriptions.create(
                    file=("talk.wav", wav(np.tile(TALK, 14))), model="whisper-1", language="en"
                )
            assert len(answer.text.split()) == 98
            assert engine.most == 1 if is_someone_speaking else 1 < engine.most <= 4


async def test_an_upload_that_breaks_off_leaves_nothing_behind(service: Running) -> None:
    with socket.create_connection((service.host, service.port)) as raw:
        raw.sendall(
            b"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n"
            b"Content-Type: multipart/form-data; boundary=x\r\n\r\n--x\r\n"
        )
        await asyncio.sleep(0.1)
    async with httpx.AsyncClient(base_url=service.http) as http:
        assert (await http.get("/healthz")).status_code == 200


async def test_an_upload_beyond_the_limit_is_413() -> None:
    settings = ServerConfig(port=0, drain_timeout_s=2.0, max_upload_bytes=100_000, calibrate=False)
    async with (
        running(config=settings) as service,
        httpx.AsyncClient(base_url=service.http) as http,
    ):
        body = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
        body += bytes(200_000) + b"\r\n--x--\r\n"

        async def pieces() -> AsyncIterator[bytes]:
            for at in range(0, len(body), 50_000):
                yield body[at : at + 50_000]

        for content in (body, pieces()):
            answer = await http.post(
                "/v1/audio/transcriptions",
                content=content,
                headers={"content-type": "multipart/form-data; boundary=x"},
            )
            assert answer.status_code == 413
            assert answer.json()["error"]["code"] == "file_too_large"


async def test_more_files_than_there_is_room_for_are_503() -> None:
    engine = _Blocking()
    settings = ServerConfig(port=0, drain_timeout_s=0.1, max_recordings=1, calibrate=False)
    async with (
        running(lambda: engine, settings) as service,
        httpx.AsyncClient(base_url=service.http) as http,
    ):

        async def post() -> httpx.Response:
            return await http.post(
                "/v1/audio/transcriptions",
                data={"model": "whisper-1"},
                files={"file": ("talk.wav", wav(TALK))},
            )

        first = asyncio.create_task(post())
        await until(lambda: engine.num_decoding)
        answer = await post()
        assert answer.status_code == 503 and int(answer.headers["retry-after"]) > 0
        assert answer.json()["error"]["code"] == "busy"
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)


async def test_a_key_pays_for_its_files_afterwards() -> None:
    settings = ServerConfig(
        port=0,
        drain_timeout_s=2.0,
        api_keys=("a-key-of-enough-characters",),
        key_audio_s_per_minute=5.0,
        calibrate=False,
    )
    async with (
        running(config=settings) as service,
        openai.AsyncOpenAI(
            base_url=service.http + "/v1", api_key="a-key-of-enough-characters", max_retries=0
        ) as client,
    ):
        answer = await client.audio.transcriptions.create(
            file=("talk.wav", wav(TALK)), model="whisper-1"
        )
        assert answer.text == TEXT  # 8.5 s: more than it may have, so it owes
        with pytest.raises(openai.RateLimitError) as caught:
            await client.audio.transcriptions.create(
                file=("talk.wav", wav(TALK)), model="whisper-1"
            )
        assert int(caught.value.response.headers["retry-after"]) > 30


async def test_health_answers_while_a_long_file_is_transcribed(http: httpx.AsyncClient) -> None:
    long = wav(np.tile(TALK, 8 * 60 * 10 // 85))
    delays = []
    # a machine that stands still does so in one round; what blocks the loop, in each
    for _ in range(3):
        delays = await _delays_during_upload(http, long)
        # the client shares the loop and the machine with the service, so the bound is a wide one
        if delays[int(len(delays) * 0.95)] < 0.5:
            return
    raise AssertionError(delays[-5:])


async def _delays_during_upload(http: httpx.AsyncClient, file: bytes) -> list[float]:
    """Have a file transcribed; returns how long probes took meanwhile, in seconds, sorted."""
    upload = asyncio.create_task(
        http.post(
            "/v1/audio/transcriptions",
            data={"model": "whisper-1"},
            files={"file": ("long.wav", file)},
            timeout=120,
        )
    )
    delays = []
    loop = asyncio.get_running_loop()
    async with httpx.AsyncClient(base_url=str(http.base_url)) as other:
        while not upload.done():
            started = loop.time()
            assert (await other.get("/healthz")).status_code == 200
            delays.append(loop.time() - started)
            await asyncio.sleep(0.05)
    answer = await upload
    assert answer.status_code == 200 and len(answer.json()["text"].split()) > 380
    return sorted(delays)
