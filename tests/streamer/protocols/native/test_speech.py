"""`/v1/stream` with a real model and real speech: nothing of what was said is lost at the edge."""

from __future__ import annotations

import asyncio
import io
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import soundfile
import soxr
import websockets

from clients.telephone import encode_mulaw
from engine.api import Engine, Samples
from tests.support.audio import pcm16
from tests.support.models import run_engine
from tests.support.running_service import Running
from tests.support.waiting import until

# a machine that is slow, or shared, decodes some of it for a minute
pytestmark = [pytest.mark.model, pytest.mark.timeout(400)]

RATE = 16_000
Message = dict[str, Any]


@pytest.fixture(scope="module")
def served_engine() -> Iterator[Engine]:
    yield from run_engine("tiny.en")


@pytest.fixture(scope="session")
def speech(recordings: list[Any]) -> Callable[[str], np.ndarray]:
    def read(name: str) -> np.ndarray:
        return next(r for r in recordings if r.path.stem == name).read()  # type: ignore[no-any-return]

    return read


async def _stream(
    service: Running,
    data: bytes,
    *,
    chunk: int = 3200,
    pace_s: float = 0.0,
    end: bool = True,
    **settings: object,
) -> list[tuple[float, Message]]:
    """Send audio; return the messages and when they came, counted from the last byte sent."""
    messages: list[tuple[float, Message]] = []
    async with websockets.connect(f"{service.ws}/v1/stream", compression=None) as socket:

        async def read() -> None:
            async for text in socket:
                messages.append((time.monotonic(), json.loads(text)))

        reading = asyncio.create_task(read())
        await socket.send(json.dumps({"type": "start", **settings}))
        for start in range(0, len(data), chunk):
            await socket.send(data[start : start + chunk])
            await asyncio.sleep(pace_s)
        sent = time.monotonic()
        if end:
            await socket.send('{"type":"end"}')
        async with asyncio.timeout(150):
            await reading
        assert socket.close_code == 1000
    return [(moment - sent, message) for moment, message in messages]


def _text(messages: list[tuple[float, Message]], channel: int = 0) -> str:
    """Join the finals of a channel, and check that they keep what partials had settled."""
    settled: dict[int, str] = {}
    texts = []
    for _, message in messages:
        if message.get("channel") != channel:
            continue
        segment = message["segment"]
        if message["type"] == "partial":
            assert message["settled"].startswith(settled.get(segment, ""))
            settled[segment] = message["settled"]
        elif message["type"] == "final":
            assert message["text"].startswith(settled.get(segment, ""))
            texts.append(message["text"].strip())
    return " ".join(texts).lower()


@pytest.mark.parametrize("chunk", [640, 4096])
async def test_the_last_word_arrives_wherever_the_sound_is_cut(
    service: Running, speech: Callable[[str], np.ndarray], chunk: int
) -> None:
    talk = speech("jfk")
    loud = np.flatnonzero(np.abs(talk) > 0.02)
    cut = talk[5 * RATE : loud[-1] + RATE // 10]
    sounds = [np.concatenate([cut, np.zeros(ms * 16, np.float32)]) for ms in (0, 7, 29, 333)]
    results = await asyncio.gather(*(_stream(service, pcm16(s), chunk=chunk) for s in sounds))
    for messages in results:
        assert _text(messages).rstrip(".!").endswith("country")
        assert messages[-1][1]["type"] == "done"


async def test_text_comes_while_people_speak_and_is_final_without_more_sound(
    service: Running, speech: Callable[[str], np.ndarray]
) -> None:
    first, second = speech("arctic_a0009"), speech("jfk")[: 4 * RATE]
    async with websockets.connect(f"{service.ws}/v1/stream", compression=None) as socket:
        await socket.send('{"type":"start"}')
        finals: list[Message] = []
        partials: list[Message] = []

        async def read() -> None:
            async for text in socket:
                message = json.loads(text)
                if message["type"] == "final":
                    finals.append(message)
                elif message["type"] == "partial" and not finals:
                    partials.append(message)

        reading = asyncio.create_task(read())
        data = pcm16(first)
        for start in range(0, len(data), 3200):
            await socket.send(data[start : start + 3200])
            await asyncio.sleep(0.1)
        # no end, and not even silence: the rest must not wait for more
        await until(lambda: finals, limit_s=150)
        await socket.send(pcm16(second))
        await socket.send('{"type":"end"}')
        async with asyncio.timeout(150):
            await reading
    # asked for while speech goes on, however long the machine took
    assert partials[0]["end"] < len(first) / RATE - 0.5
    assert finals[0]["end"] <= len(first) / RATE + 0.1
    said = " ".join(final["text"] for final in finals[1:]).lower()
    assert "fellow americans" in said and finals[1]["start"] >= len(first) / RATE - 0.5


async def test_four_clients_at_once_get_their_own_words_in_any_encoding(
    service: Running, speech: Callable[[str], np.ndarray]
) -> None:
    def at(samples: Samples, rate: int) -> Samples:
        return soxr.resample(samples, RATE, rate)  # type: ignore[no-any-return]

    jfk, printing = speech("jfk"), speech("lj_LJ001-0001")
    left, right = jfk, printing[: len(jfk)]
    right = np.pad(right, (0, len(left) - len(right)))
    stereo = np.stack([at(left, 44_100), at(right, 44_100)], axis=1)
    results = await asyncio.gather(
        _stream(
            service,
            at(printing, 48_000).astype("<f4").tobytes(),
            encoding="pcm_f32le",
            sample_rate=48_000,
        ),
        _stream(service, encode_mulaw(at(jfk, 8_000)), encoding="mulaw", sample_rate=8_000),
        _stream(service, pcm16(stereo.reshape(-1)), sample_rate=44_100, channels=2),
        _stream(service, pcm16(printing), chunk=777),
    )
    f32, mulaw, both, plain = results
    for messages in (f32, plain):
        assert "arts and crafts" in _text(messages) and "country" not in _text(messages)
    assert "country" in _text(mulaw) and "printing" not in _text(mulaw)
    assert "country" in _text(both, 0) and "country" not in _text(both, 1)
    assert "printing" in _text(both, 1) and "printing" not in _text(both, 0)


async def test_a_wav_file_sent_as_it_is_has_its_header_skipped(
    service: Running, speech: Callable[[str], np.ndarray]
) -> None:
    talk = speech("jfk")
    file = io.BytesIO()
    soundfile.write(file, talk, RATE, format="WAV", subtype="PCM_16")
    messages = await _stream(service, file.getvalue(), chunk=4096)
    assert messages[-1][1]["duration"] == pytest.approx(len(talk) / RATE, abs=0.01)
    assert "country" in _text(messages)
    file = io.BytesIO()
    soundfile.write(file, talk, 44_100, format="WAV", subtype="PCM_16")
    async with websockets.connect(f"{service.ws}/v1/stream") as socket:
        await socket.send(file.getvalue()[:4096])
        messages_of_other: list[str] = []
        with pytest.raises(websockets.ConnectionClosedError):
            async for text in socket:
                messages_of_other.append(str(text))
    error = json.loads(messages_of_other[-1])
    assert error["code"] == "invalid_audio" and "44100" in error["message"]
    assert socket.close_code == 1008
