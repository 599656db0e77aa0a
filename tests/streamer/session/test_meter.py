"""A session counts what it does, keeps to its key's budget, and can be stopped from outside."""

from __future__ import annotations

import asyncio
import time

import pytest

from streamer.access.limits import Bucket
from streamer.audio.pcm import AudioFormat
from streamer.operations.metrics import Metrics
from streamer.session.live import LiveSession
from streamer.session.meter import SessionMeter
from streamer.transcription.events import Event, Final
from streamer.transcription.settings import SessionSettings
from tests.support.audio import babble, pcm16, quiet
from tests.support.engines import CountingEngine
from tests.support.waiting import LIMIT_S, in_virtual_time


def session(metrics: Metrics, budget: Bucket | None = None) -> LiveSession:
    settings = SessionSettings(language="en", vad_threshold=0.0)
    meter = SessionMeter(metrics, budget, time.monotonic())
    return LiveSession(CountingEngine(), AudioFormat(), settings, meter)


def value(metrics: Metrics, name: str) -> float:
    for line in metrics.render().decode().splitlines():
        if line.startswith(f"wordwire_{name} "):
            return float(line.split()[1])
    raise AssertionError(name)


async def collect(live: LiveSession) -> list[Event]:
    async with asyncio.timeout(LIMIT_S):
        return [event async for event in live.events()]


async def test_sound_and_finals_are_counted_and_live_delays_timed() -> None:
    metrics = Metrics()
    sound = pcm16(babble(2.0)) + pcm16(quiet(1.0))
    async with session(metrics) as live:
        listening = asyncio.create_task(collect(live))
        for first in range(0, len(sound), 3200):
            await live.feed(sound[first : first + 3200])
            if first < 64_000:
                spoken_at = time.monotonic()
            await asyncio.sleep(0.09)
        await live.end()
        events = await listening
    assert [e.text.split() for e in events if isinstance(e, Final)] == [["w0", "w1", "w2", "w3"]]
    assert value(metrics, "audio_seconds_total") == pytest.approx(3.0)
    assert value(metrics, "final_delay_seconds_count") == 1
    assert 0.0 < value(metrics, "final_delay_seconds_sum") <= time.monotonic() - spoken_at
    assert value(metrics, "first_word_seconds_count") == 1
    assert value(metrics, "lag_seconds_count") >= 1


async def test_a_recording_sent_at_once_says_nothing_about_delays() -> None:
    metrics = Metrics()
    async with session(metrics) as live:
        listening = asyncio.create_task(collect(live))
        await live.feed(pcm16(babble(8.0)))
        await live.end()
        await listening
    assert value(metrics, "final_delay_seconds_count") == 0
    assert value(metrics, 'segments_total{withheld="no"}') >= 1


@in_virtual_time
async def test_a_spent_budget_slows_the_sender_down() -> None:
    budget = Bucket(rate=4.0, size=1.0, now=time.monotonic())
    async with session(Metrics(), budget) as live:
        start = time.monotonic()
        for _ in range(3):
            await live.feed(pcm16(babble(1.0)))
        assert time.monotonic() - start == pytest.approx(0.5)


async def test_stopping_makes_what_was_said_final_and_drops_what_comes_after() -> None:
    async with session(Metrics()) as live:
        listening = asyncio.create_task(collect(live))
        await live.feed(pcm16(babble(2.0)))
        await live.stop()
        await live.feed(pcm16(babble(2.0)))
        await live.finalize()
        await live.end()
        events = await listening
    finals = " ".join(event.text for event in events if isinstance(event, Final))
    assert finals.split() == ["w0", "w1", "w2", "w3"]
    assert live.duration == 32_000


async def test_each_side_of_a_call_counts_its_own_sound() -> None:
    metrics = Metrics()
    meter = SessionMeter(metrics, None, time.monotonic())
    settings = SessionSettings(language="en")
    live = LiveSession(CountingEngine(), AudioFormat("mulaw", 8000, 2), settings, meter)
    async with live:
        await live.feed(bytes(8000), channel=0)
        assert value(metrics, "audio_seconds_total") == 1.0
        await live.feed(bytes(8000))
        assert value(metrics, "audio_seconds_total") == pytest.approx(2.0)
