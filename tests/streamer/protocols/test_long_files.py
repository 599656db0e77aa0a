"""Long files: their times in every format, and what they leave to others."""

from __future__ import annotations

import asyncio
import json
import re

import httpx
import numpy as np
import pytest
import websockets

from streamer.service import RECORDING_STREAMS
from tests.support.audio import babble, pcm16, quiet
from tests.support.audio import wav as write_wav
from tests.support.engines import CountingEngine, Pace
from tests.support.running_service import Running, running
from tests.support.waiting import until

# sentences with pauses of many lengths, over several windows; each word names its half second
GAPS_S = (1.0, 0.5, 2.5, 6.0, 1.5, 12.0, 3.0, 30.0, 0.5, 2.0, 45.0, 4.0)
SENTENCE = babble(2.0)
CLOCK = np.concatenate([part for gap in GAPS_S for part in (quiet(gap), SENTENCE)])
NUMBERS = [
    int(2 * sum(GAPS_S[: index + 1])) + 4 * index + word
    for index in range(len(GAPS_S))
    for word in range(4)
]
PATH = "/v1/audio/transcriptions"


async def post(service: Running, audio: np.ndarray, **form: str) -> httpx.Response:
    async with httpx.AsyncClient(base_url=service.http, timeout=60) as client:
        return await client.post(
            PATH,
            data={"model": "whisper-1", "language": "en", **form},
            files={"file": ("long.wav", write_wav(audio))},
        )


def numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"w(\d+)", text)]


def check_span(text: str, start: float, end: float, tolerance_s: float = 0.4) -> None:
    first, *_ = found = numbers(text)
    assert abs(start - first / 2) <= tolerance_s, (text, start)
    assert abs(end - (found[-1] + 1) / 2) <= tolerance_s, (text, end)


async def test_words_and_segments_of_a_file_are_in_their_places_to_its_end(
    service: Running,
) -> None:
    form = {"timestamp_granularities[]": "word", "response_format": "verbose_json"}
    body = (await post(service, CLOCK, **form)).json()
    assert [(w["word"], w["start"], w["end"]) for w in body["words"]] == [
        (f"w{n}", n / 2, (n + 1) / 2) for n in NUMBERS
    ]
    body = (await post(service, CLOCK, response_format="verbose_json")).json()
    assert numbers(body["text"]) == NUMBERS
    assert numbers("".join(segment["text"] for segment in body["segments"])) == NUMBERS
    for segment in body["segments"]:
        check_span(segment["text"], segment["start"], segment["end"])


@pytest.mark.parametrize("kind", ["srt", "vtt"])
async def test_cues_of_a_file_are_in_their_places_to_its_end(service: Running, kind: str) -> None:
    text = (await post(service, CLOCK, response_format=kind)).text
    assert numbers(text) == NUMBERS  # the same words as in the other formats
    clock = r"(\d\d):(\d\d):(\d\d)[,.](\d{3})"
    cues = re.findall(rf"{clock} --> {clock}\n(.+)\n", text)
    assert len(cues) > 3
    for *times, words in cues:
        h, m, s, ms, *end = map(int, times)
        start_s = 3600 * h + 60 * m + s + ms / 1000
        h, m, s, ms = end
        check_span(words, start_s, 3600 * h + 60 * m + s + ms / 1000)


async def test_a_live_session_has_the_same_words_in_the_same_places(service: Running) -> None:
    url = f"{service.ws}/v1/stream?words=true&language=en&partials=false"
    async with websockets.connect(url) as socket:
        data = pcm16(CLOCK)
        for first in range(0, len(data), 64_000):
            await socket.send(data[first : first + 64_000])
        await socket.send('{"type":"end"}')
        messages = [json.loads(text) async for text in socket]
    finals = [message for message in messages if message["type"] == "final" and message["text"]]
    words = [word for final in finals for word in final["words"]]
    assert [numbers(word["text"]) for word in words] == [[n] for n in NUMBERS]
    for word in words:
        check_span(word["text"], word["start"], word["end"])


NUM_WARM_UP = 2  # windows that are decoded before the service is ready
# all of it is speech, so windows are as long as they may be
WITHOUT_DETECTION = {"chunking_strategy": '{"type":"server_vad","threshold":0}'}


async def test_a_short_file_does_not_wait_for_a_long_one() -> None:
    engine = CountingEngine(Pace(0.15, width=1, num_free=NUM_WARM_UP))
    async with running(lambda: engine) as service:
        ten_minutes = np.tile(SENTENCE, 300)
        long = asyncio.create_task(post(service, ten_minutes, **WITHOUT_DETECTION))
        await until(lambda: engine.num_pending >= 2)
        before = engine.num_decoded
        answer = await post(service, babble(3.0), **WITHOUT_DETECTION)
        assert answer.json()["text"] == "w0 w1 w2 w3 w4 w5"
        # of the long one, what was in work already, and as much again
        assert engine.num_decoded - before <= 1 + 2 * RECORDING_STREAMS
        assert not long.done()
        long.cancel()
        await asyncio.gather(long, return_exceptions=True)


async def test_who_leaves_a_stream_of_events_frees_the_engine() -> None:
    engine = CountingEngine(Pace(0.0, width=1, num_answers=NUM_WARM_UP + 1))
    async with running(lambda: engine) as service:
        form = {"model": "whisper-1", "language": "en", "stream": "true", **WITHOUT_DETECTION}
        file = ("long.wav", write_wav(np.tile(SENTENCE, 60)))
        async with (
            httpx.AsyncClient(base_url=service.http, timeout=10) as client,
            client.stream("POST", PATH, data=form, files={"file": file}) as answer,
        ):
            async for line in answer.aiter_lines():
                assert "transcript.text.delta" in line
                break
            assert engine.num_pending
        await until(lambda: not engine.num_pending)


async def test_many_files_at_once_are_read_or_refused(service: Running) -> None:
    form = {"model": "whisper-1", "language": "en", **WITHOUT_DETECTION}
    file = ("short.wav", write_wav(babble(5.0)))
    async with httpx.AsyncClient(base_url=service.http, timeout=30) as client:

        async def post_one() -> httpx.Response:
            return await client.post(PATH, data=form, files={"file": file})

        for num_clients in (1, 3, 16, 64):
            answers = await asyncio.gather(*(post_one() for _ in range(num_clients)))
            for answer in answers:
                if answer.status_code == 503:
                    assert int(answer.headers["retry-after"]) > 0
                else:
                    assert numbers(answer.json()["text"]) == list(range(10))
            num_read = sum(answer.status_code == 200 for answer in answers)
            assert num_read == num_clients if num_clients <= 16 else num_read >= 16


async def test_a_prompt_of_a_thousand_words_is_taken(service: Running) -> None:
    answer = await post(service, babble(1.0), prompt="harbour ferry stone market " * 250)
    assert (answer.status_code, answer.json()["text"]) == (200, "w0 w1")
