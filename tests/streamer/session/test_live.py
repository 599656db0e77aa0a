"""LiveSession over a scripted engine: bytes in, events out."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

import numpy as np
import pytest

from engine.api import EngineBusy, InvalidRequest, StreamOptions
from streamer.audio.pcm import AudioFormat
from streamer.session.live import LiveSession
from streamer.transcription.events import Event, Final, SpeechStarted
from streamer.transcription.settings import SessionSettings
from tests.support.audio import pcm16
from tests.support.engines import ScriptedEngine
from tests.support.timeline import Recogniser, Timeline, timeline
from tests.support.waiting import in_virtual_time, stand_still, until

TALK = timeline([4, 6, 3], [0.8, 0.4, 1.2])


def text(events: Sequence[Event], channel: int = 0) -> str:
    return " ".join(e.text for e in events if isinstance(e, Final) and e.channel == channel)


async def collect(live: LiveSession, events: list[Event]) -> None:
    async for event in live.events():
        events.append(event)


async def transcribe(
    engine: ScriptedEngine, talk: Timeline, settings: SessionSettings, chunk: int = 3200
) -> list[Event]:
    events: list[Event] = []
    data = pcm16(talk.samples)
    async with LiveSession(engine, AudioFormat(), settings) as live:
        reader = asyncio.create_task(collect(live, events))
        for i in range(0, len(data), chunk):
            await live.feed(data[i : i + chunk])
        await live.end()
        await reader
        assert live.duration == len(talk.samples)
        assert live.num_segments == sum(isinstance(e, Final) for e in events)
    assert engine.num_open == 0
    return events


async def test_every_word_arrives_in_a_final() -> None:
    events = await transcribe(ScriptedEngine(Recogniser(TALK.words)), TALK, SessionSettings())
    assert text(events) == TALK.text


@pytest.mark.parametrize("chunk", [1, 639, 4096, 1 << 24])
async def test_packet_sizes_do_not_change_finals(chunk: int) -> None:
    talk = timeline([2], [0.7]) if chunk == 1 else TALK
    settings = SessionSettings(partials=chunk > 1)
    events = await transcribe(
        ScriptedEngine(Recogniser(talk.words, waver=0.4)), talk, settings, chunk
    )
    assert text(events) == talk.text


async def test_lost_streams_lose_no_words() -> None:
    engine = ScriptedEngine(Recogniser(TALK.words), lose_every=7)
    assert text(await transcribe(engine, TALK, SessionSettings())) == TALK.text
    assert len(engine.options) > 3


async def test_a_stream_lost_for_good_ends_the_session() -> None:
    engine = ScriptedEngine(Recogniser(TALK.words), lose_every=1)
    with pytest.raises(Exception, match="scripted loss"):
        await transcribe(engine, timeline([2], [0.7]), SessionSettings())


async def test_a_refusal_reaches_events_and_feed() -> None:
    engine = ScriptedEngine(Recogniser(TALK.words))
    engine.failure = InvalidRequest("expected less")
    async with LiveSession(engine, AudioFormat(), SessionSettings()) as live:
        with contextlib.suppress(InvalidRequest):  # the first window may be refused meanwhile
            await live.feed(pcm16(TALK.samples))
        with pytest.raises(InvalidRequest):
            async for _ in live.events():
                pass
        with pytest.raises(InvalidRequest):
            await live.feed(b"\0" * 640)


async def test_no_room_is_known_on_entering() -> None:
    class FullEngine(ScriptedEngine):
        def stream(self, options: StreamOptions):  # type: ignore[no-untyped-def]
            raise EngineBusy("full")

    with pytest.raises(EngineBusy):
        async with LiveSession(FullEngine(Recogniser(())), AudioFormat(), SessionSettings()):
            pass


async def test_two_channels_are_told_apart() -> None:
    samples = np.stack([TALK.samples, np.zeros_like(TALK.samples)], axis=1)
    events: list[Event] = []
    engine = ScriptedEngine(Recogniser(TALK.words))
    async with LiveSession(engine, AudioFormat(channels=2), SessionSettings()) as live:
        await live.feed(pcm16(samples))
        await live.end()
        await collect(live, events)
    assert text(events, 0) == TALK.text
    assert text(events, 1) == ""
    assert {event.channel for event in events} == {0}


async def test_mono_packets_go_to_the_channel_they_name() -> None:
    events: list[Event] = []
    engine = ScriptedEngine(Recogniser(TALK.words))
    async with LiveSession(engine, AudioFormat(channels=2), SessionSettings()) as live:
        data = pcm16(TALK.samples)
        for i in range(0, len(data), 6401):
            await live.feed(b"\0" * len(data[i : i + 6401]), channel=0)
            await live.feed(data[i : i + 6401], channel=1)
        with pytest.raises(ValueError, match="channel below 2"):
            await live.feed(b"", channel=2)
        await live.end()
        await collect(live, events)
    assert text(events, 1) == TALK.text


@in_virtual_time
async def test_sound_that_stops_coming_is_finalized() -> None:
    """The client's own speech detection may stop sending right after the last word."""
    events: list[Event] = []
    engine = ScriptedEngine(Recogniser(TALK.words))
    until_sample = TALK.words[3].end + 800
    loop = asyncio.get_running_loop()
    async with LiveSession(engine, AudioFormat(), SessionSettings()) as live:
        reader = asyncio.create_task(collect(live, events))
        for i in range(0, until_sample, 1600):
            await live.feed(pcm16(TALK.samples[i : min(i + 1600, until_sample)]))
            await asyncio.sleep(0.1)
        stopped = loop.time() - 0.1
        await until(lambda: any(isinstance(e, Final) for e in events))
        assert 1.0 < loop.time() - stopped < 1.2  # a second after the packet is over
        for i in range(until_sample, len(TALK.samples), 1600):
            await live.feed(pcm16(TALK.samples[i : i + 1600]))
        await live.end()
        await reader
    assert text(events) == TALK.text


@in_virtual_time
async def test_a_service_that_stood_still_does_not_take_it_for_a_pause() -> None:
    """What was said meanwhile lies in the socket; a final inside a word would cost it."""
    talk = timeline([12], [1.0])
    events: list[Event] = []
    engine = ScriptedEngine(Recogniser(talk.words), cost_s=0.05)
    async with LiveSession(engine, AudioFormat(), SessionSettings()) as live:
        reader = asyncio.create_task(collect(live, events))
        for number, i in enumerate(range(0, len(talk.samples), 1600)):
            await live.feed(pcm16(talk.samples[i : i + 1600]))
            if number % 8 == 7:
                stand_still(5.0)
                # a socket, a protocol and a queue lie before the session
                for _ in range(20):
                    await asyncio.sleep(0)
            else:
                await asyncio.sleep(0.1)
        await live.end()
        await reader
    assert [e.text for e in events if isinstance(e, Final)] == [talk.text]


async def test_leaving_aborts_what_is_in_flight() -> None:
    engine = ScriptedEngine(Recogniser(TALK.words), cost_s=60)
    async with LiveSession(engine, AudioFormat(), SessionSettings()) as live:
        await live.feed(pcm16(TALK.samples))
        await asyncio.sleep(0.05)
    assert engine.num_open == 0


async def test_feeding_waits_while_transcription_is_far_behind() -> None:
    talk = timeline([300], [0.1])
    engine = ScriptedEngine(Recogniser(talk.words), cost_s=60)
    async with LiveSession(engine, AudioFormat(), SessionSettings()) as live:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2.0):
                await live.feed(pcm16(talk.samples))
        assert live.duration < 50 * 16_000


async def test_finalize_closes_the_open_segment() -> None:
    events: list[Event] = []
    engine = ScriptedEngine(Recogniser(TALK.words))
    async with LiveSession(engine, AudioFormat(), SessionSettings()) as live:
        await live.feed(pcm16(TALK.samples[: TALK.words[1].end]))
        await live.finalize()
        await live.feed(pcm16(TALK.samples[TALK.words[1].end : TALK.words[3].end]))
        await live.end()
        await collect(live, events)
    finals = [e.text for e in events if isinstance(e, Final)]
    assert finals == ["W0 w1", "w2 w3."]
    assert [e.segment for e in events if isinstance(e, SpeechStarted)] == [0, 1]


async def test_an_undetected_language_is_asked_for_again() -> None:
    """One detected in the first half second must not stick."""
    engine = ScriptedEngine(Recogniser(TALK.words))
    await transcribe(engine, TALK, SessionSettings())
    languages = [options.language for options in engine.options]
    assert languages[0] is None and languages[-1] == "en"
    assert languages.count("en") == 1
