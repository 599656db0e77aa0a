"""How soon is a word shown right, how soon is it settled, how soon does a pause make it final?

    python -m benchmarks.latency [--streams 1] [--minutes 2] [--delay low]

Plays recordings at the pace of real time, in packets of 100 ms, several streams at once, to live
sessions over an engine in this process. The times of the words are those of the whole recording's
decode.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

import numpy as np

from benchmarks import delays
from benchmarks.hardware import describe
from benchmarks.recordings import Recording, list_recordings
from benchmarks.simulation import Told
from engine.api import SAMPLE_RATE, Engine, Samples, Word
from engine.config import EngineConfig
from engine.local import load_engine
from streamer import offline
from streamer.audio import AudioFormat
from streamer.live import LiveSession
from streamer.settings import Delay, SessionSettings

PACKET = SAMPLE_RATE // 10
CATEGORIES = ("read_en", "spontaneous_en", "phone_8k", "longform_en")
TAIL_S = 1.5  # of silence behind each recording, so that its pause is heard
MAX_CLIP_S = 60.0


@dataclass(frozen=True, slots=True)
class Clip:
    """A recording to play, and its words."""

    samples: Samples
    words: list[Word]


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="base")
    parser.add_argument("--streams", type=int, nargs="*", default=[1])
    parser.add_argument("--minutes", type=float, default=2.0, help="of sound per stream")
    parser.add_argument("--delay", choices=[d.value for d in Delay], default="low")
    parser.add_argument("--dtype", default="auto")
    arguments = parser.parse_args()
    engine = load_engine(EngineConfig(model=arguments.model, dtype=arguments.dtype))
    settings = SessionSettings(language="en", delay=Delay(arguments.delay))
    try:
        most = max(arguments.streams)
        clips = await prepare(engine, most * arguments.minutes)
        rows = {}
        for num_streams in arguments.streams:
            before, started = time.process_time(), time.monotonic()
            result, sound_s = await measure(engine, clips, settings, num_streams, arguments.minutes)
            cpu_s = time.process_time() - before
            rows[num_streams] = row(result) | {"cpu_s_per_s": round(cpu_s / sound_s, 3)}
            assert time.monotonic() - started >= arguments.minutes * 60
    finally:
        engine.close()
    report(rows)
    print(
        json.dumps(
            {"latency": rows, "model": arguments.model, "delay": arguments.delay, **describe()}
        )
    )


async def prepare(engine: Engine, minutes: float) -> list[Clip]:
    """Decode the recordings to be played, and find out when their words are said."""
    groups = [[r for r in list_recordings() if r.category == category] for category in CATEGORIES]
    # one of each category by turns
    turns = itertools.chain.from_iterable(itertools.zip_longest(*groups))
    clips: list[Clip] = []
    seconds = 0.0
    for recording in turns:
        if recording is None or seconds > minutes * 60:
            continue
        clip = await _prepare_one(engine, recording)
        clips.append(clip)
        seconds += len(clip.samples) / SAMPLE_RATE
    return clips


async def _prepare_one(engine: Engine, recording: Recording) -> Clip:
    samples = recording.read(MAX_CLIP_S)
    noise = np.random.default_rng(0).standard_normal(int(TAIL_S * SAMPLE_RATE)) * 1e-4
    samples = np.concatenate([samples, noise.astype(np.float32)])
    settings = SessionSettings(language="en", word_times=True)
    words: list[Word] = []
    async for hypothesis in offline.transcribe(engine, _once(samples), settings):
        words += [word for segment in hypothesis.segments for word in segment.words]
    return Clip(samples, words)


async def _once(samples: Samples) -> AsyncIterator[Samples]:
    yield samples


async def measure(
    engine: Engine, clips: list[Clip], settings: SessionSettings, num_streams: int, minutes: float
) -> tuple[delays.Delays, float]:
    """Play to so many streams at once, each its own share of the clips, over and over.

    Returns:
        The delays, and the seconds of sound played to all streams.
    """
    sound_s = 0.0
    until = time.monotonic() + minutes * 60

    async def stream(number: int) -> list[delays.Delays]:
        nonlocal sound_s
        await asyncio.sleep(0.37 * number)  # streams do not start in step
        results = []
        for index in itertools.count():
            clip = clips[(number * len(clips) // num_streams + index) % len(clips)]
            results.append(await _play(engine, clip, settings))
            sound_s += len(clip.samples) / SAMPLE_RATE
            if time.monotonic() > until:
                return results
        raise AssertionError

    total = delays.Delays()
    for results in await asyncio.gather(*(stream(i) for i in range(num_streams))):
        for result in results:
            total.add(result)
    return total, sound_s


async def _play(engine: Engine, clip: Clip, settings: SessionSettings) -> delays.Delays:
    told: list[Told] = []
    async with LiveSession(engine, AudioFormat("pcm_f32le"), settings) as live:
        started = time.monotonic()

        async def listen() -> None:
            async for event in live.events():
                told.append(Told(time.monotonic() - started, event))

        listener = asyncio.create_task(listen())
        for first in range(0, len(clip.samples), PACKET):
            packet = clip.samples[first : first + PACKET]
            due = started + (first + len(packet)) / SAMPLE_RATE
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            await live.feed(packet.tobytes())
        await live.end()
        await listener
    return delays.measure(told, clip.words)


def row(result: delays.Delays) -> dict[str, float]:
    """Reduce the measurements to what the table shows."""
    return {
        "shown_p50": round(delays.percentile(result.shown_s, 50), 2),
        "shown_p95": round(delays.percentile(result.shown_s, 95), 2),
        "settled_p50": round(delays.percentile(result.settled_s, 50), 2),
        "settled_p95": round(delays.percentile(result.settled_s, 95), 2),
        "final_p50": round(delays.percentile(result.final_s, 50), 2),
        "final_p95": round(delays.percentile(result.final_s, 95), 2),
        "changed_percent": round(100 * result.num_changed / max(1, result.num_shown), 1),
        "held_changed_percent": round(100 * result.num_held_changed / max(1, result.num_held), 1),
        "words": len(result.shown_s),
    }


def report(rows: dict[int, dict[str, float]]) -> None:
    """Print the table; times in seconds."""
    print("           first right      settled          final        changed  held   CPU s/s")
    print("streams    p50    p95     p50    p95     p50    p95          %      %")
    for num_streams, r in rows.items():
        print(
            f"{num_streams:7}{r['shown_p50']:7.2f}{r['shown_p95']:7.2f}{r['settled_p50']:8.2f}"
            f"{r['settled_p95']:7.2f}{r['final_p50']:8.2f}{r['final_p95']:7.2f}"
            f"{r['changed_percent']:11.1f}{r['held_changed_percent']:7.1f}{r['cpu_s_per_s']:10.2f}"
        )


if __name__ == "__main__":
    asyncio.run(main())
