"""Deepgram's own SDK sends files to the running service."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import numpy as np
import pytest

from streamer.config import ServerConfig
from tests.support.audio import babble, pcm16, quiet, wav
from tests.support.running_service import Running, running

deepgram = pytest.importorskip("deepgram")
from deepgram.core.api_error import ApiError  # noqa: E402
from deepgram.environment import DeepgramClientEnvironment  # noqa: E402

# the SDK asks for a module of websockets that says it is deprecated
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

TALK = np.concatenate([quiet(1.0), babble(2.0), quiet(2.0), babble(1.5, seed=2), quiet(1.0)])


@pytest.fixture
async def media(service: Running) -> AsyncIterator[Any]:
    """The SDK's client for files; it leaves its connections for others to close."""
    environment = DeepgramClientEnvironment(
        base=service.http, production=service.ws, agent=service.ws, agent_rest=service.http
    )
    async with httpx.AsyncClient(timeout=30) as http:
        client = deepgram.AsyncDeepgramClient(
            api_key="any", environment=environment, httpx_client=http
        )
        yield client.listen.v1.media


async def test_the_sdk_gets_text_words_and_the_summary(media: Any) -> None:
    response = await media.transcribe_file(
        request=wav(TALK), model="nova-3", punctuate=True, utterances=True, diarize=True
    )
    (channel,) = response.results.channels
    alternative = channel.alternatives[0]
    assert alternative.transcript == "w2 w3 w4 w5 w10 w11 w12"
    assert [(w.word, w.start, w.end) for w in alternative.words][:2] == [
        ("w2", 1.0, 1.5),
        ("w3", 1.5, 2.0),
    ]
    assert 0 < alternative.confidence <= 1
    assert response.metadata.duration == pytest.approx(7.5)
    assert response.metadata.channels == 1
    assert [w["parameter"] for w in response.metadata.warnings] == ["diarize"]
    utterances = response.results.utterances
    assert " ".join(u.transcript for u in utterances) == alternative.transcript
    assert all(u.start < u.end for u in utterances)


async def test_the_language_that_was_heard_is_named(media: Any) -> None:
    response = await media.transcribe_file(request=wav(TALK), detect_language=True)
    assert response.results.channels[0].detected_language == "en"


async def test_channels_of_a_file_stay_apart_on_request(media: Any) -> None:
    left = np.concatenate([babble(2.0), quiet(3.0)])
    right = np.concatenate([quiet(2.5), babble(2.0, seed=3), quiet(0.5)])
    sent = wav(left, right)
    apart = await media.transcribe_file(request=sent, multichannel=True)
    texts = [channel.alternatives[0].transcript for channel in apart.results.channels]
    assert texts == ["w0 w1 w2 w3", "w5 w6 w7 w8"]
    mixed = await media.transcribe_file(request=sent)
    (channel,) = mixed.results.channels
    assert channel.alternatives[0].transcript == "w0 w1 w2 w3 w5 w6 w7 w8"


async def test_raw_samples_need_their_format(media: Any) -> None:
    response = await media.transcribe_file(
        request=pcm16(TALK),
        encoding="linear16",
        request_options={"additional_query_parameters": {"sample_rate": "16000"}},
    )
    assert response.results.channels[0].alternatives[0].transcript == "w2 w3 w4 w5 w10 w11 w12"


async def test_silence_has_no_text(media: Any) -> None:
    response = await media.transcribe_file(request=wav(quiet(3.0)))
    alternative = response.results.channels[0].alternatives[0]
    assert (alternative.transcript, alternative.words, alternative.confidence) == ("", [], 0.0)


async def test_a_link_is_refused_clearly(media: Any) -> None:
    with pytest.raises(ApiError) as caught:
        await media.transcribe_url(url="https://example.org/a.wav")
    assert caught.value.status_code == 400
    assert "not fetched" in caught.value.body["err_msg"]


async def test_an_upload_beyond_the_limit_is_413() -> None:
    settings = ServerConfig(port=0, max_upload_bytes=1000, calibrate=False)
    async with (
        running(config=settings) as service,
        httpx.AsyncClient(base_url=service.http) as client,
    ):
        file = wav(quiet(0.5))

        async def pieces() -> AsyncIterator[bytes]:
            yield file[:600]
            yield file[600:]

        for content in (file, pieces()):
            response = await client.post("/v1/listen", content=content)
            assert response.status_code == 413
            assert response.json()["err_code"] == "TOO_LARGE"


@pytest.mark.parametrize(
    ("body", "query", "named"),
    [
        (b"", "", "empty"),
        (b"this is a text file, named .wav", "", "audio"),
        (b"\x89PNG\r\n\x1a\n" + bytes(500), "", "audio"),
        (b"RIFF", "", "audio"),
        (b"x", "?encoding=linear16", "sample_rate"),
        (b"x", "?encoding=opus", "opus"),
        (b"x", "?redact=pci", "redact"),
        (b"x", "?language=xx", "language"),
        (b"x", "?callback=https://example.org", "callback"),
    ],
)
async def test_what_is_no_audio_or_not_served_is_400(
    service: Running, body: bytes, query: str, named: str
) -> None:
    async with httpx.AsyncClient(base_url=service.http) as client:
        response = await client.post(f"/v1/listen{query}", content=body)
    assert response.status_code == 400
    answer = json.loads(response.content)
    assert named in answer["err_msg"]
    assert answer["request_id"] == response.headers["dg-request-id"]
    assert answer["err_code"].isupper()
