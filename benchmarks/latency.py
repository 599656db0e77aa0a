"""How soon is a word shown right, how soon is it settled, how soon does a pause make it final?

    python -m benchmarks.latency [--streams 1] [--minutes 2] [--delay low]

Starts the service and plays recordings to it at the pace of real time, in packets of 100 ms, over
as many sockets as there are streams. The times of the words are those of the whole recording's
decode.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.support import delays
from benchmarks.support.hardware import describe
from benchmarks.support.recordings import Recording, blocks_of, list_recordings
from benchmarks.support.scoring import Comparison
from benchmarks.support.service import Served, serving
from benchmarks.support.simulation import Told
from clients.client import connect
from engine.api import SAMPLE_RATE, Engine, Samples, Word
from engine.config import EngineConfig
from engine.local import load_engine
from streamer import messages
from streamer.messages import ServerMessage, Start
from streamer.recording.transcribe import transcribe
from streamer.transcription.events import Event, Final, Partial, SpeechEnded
from streamer.transcription.settings import Delay, SessionSettings

PACKET = SAMPLE_RATE // 10
CATEGORIES = ("read_en", "spontaneous_en", "phone_8k", "longform_en")
TAIL_S = 1.5  # of silence behind each recording, so that its pause is heard
MAX_CLIP_S = 60.0


@dataclass(frozen=True, slots=True)
class Clip:
    """A recording to play, and its words."""

    samples: Samples
    words: list[Word]  # of the whole recording's decode
    truth: str  # "" where only a part is played


@dataclass(slots=True)
class Result:
    """Sums over what was played."""

    delays: delays.Delays = field(default_factory=delays.Delays)
    errors: Comparison = field(default_factory=Comparison)
    audio_s: float = 0.0


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="base")
    parser.add_argument("--streams", type=int, nargs="*", default=[1])
    parser.add_argument("--minutes", type=float, default=2.0, help="of audio per stream")
    parser.add_argument("--categories", nargs="*", default=CATEGORIES)
    parser.add_argument("--delay", choices=[d.value for d in Delay], default="low")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--silence-ms", type=int, default=SessionSettings().silence_ms)
    arguments = parser.parse_args()
    engine = load_engine(EngineConfig(model=arguments.model, dtype=arguments.dtype))
    try:
        minutes = max(arguments.streams) * arguments.minutes
        clips = await prepare(engine, minutes, arguments.categories)
    finally:
        engine.close()
    start = Start(
        encoding="pcm_f32le",
        sample_rate=SAMPLE_RATE,
        language="en",
        delay=Delay(arguments.delay).value,
        silence_ms=arguments.silence_ms,
    )
    rows = {}
    options = ["--model", arguments.model, "--dtype", arguments.dtype]
    # measured beyond what the service would let in
    async with serving(
        *options, "--no-calibrate", "--max-sessions", "1000", "--final-target-s", "60"
    ) as served:
        for num_streams in arguments.streams:
            before = cpu_seconds(served)
            result = await measure(served, clips, start, num_streams, arguments.minutes)
            cpu_s = cpu_seconds(served) - before
            rows[num_streams] = row(result) | {"cpu_s_per_s": round(cpu_s / result.audio_s, 3)}
    report(rows)
    print(
        json.dumps(
            {"latency": rows, "model": arguments.model, "delay": arguments.delay, **describe()}
        )
    )


async def prepare(engine: Engine, minutes: float, categories: Sequence[str]) -> list[Clip]:
    """Decode the recordings to be played, and find out when their words are said."""
    groups = [[r for r in list_recordings() if r.category == category] for category in categories]
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
    async for hypothesis in transcribe(engine, blocks_of(samples), settings):
        words += [word for segment in hypothesis.segments for word in segment.words]
    is_whole = recording.duration_s <= MAX_CLIP_S
    return Clip(samples, words, recording.text if is_whole else "")


async def measure(
    served: Served, clips: list[Clip], start: Start, num_streams: int, minutes: float
) -> Result:
    """Play to several streams at once, each its own share of the clips, over and over."""
    until = time.monotonic() + minutes * 60
    total = Result()

    async def stream(number: int) -> None:
        await asyncio.sleep(0.37 * number)  # streams do not start in step
        for index in itertools.count():
            clip = clips[(number * len(clips) // num_streams + index) % len(clips)]
            told = await _play(served, clip, start)
            total.delays.add(delays.measure(told, clip.words))
            total.audio_s += len(clip.samples) / SAMPLE_RATE
            if clip.truth:
                finals = [each.event.text for each in told if isinstance(each.event, Final)]
                whole = "".join(word.text for word in clip.words)
                total.errors.add(clip.truth, " ".join(finals), whole)
            if time.monotonic() > until:
                return

    await asyncio.gather(*(stream(number) for number in range(num_streams)))
    return total


async def _play(served: Served, clip: Clip, start: Start) -> list[Told]:
    told: list[Told] = []
    async with connect(served.ws, start) as session:
        began = time.monotonic()

        async def speak() -> None:
            for first in range(0, len(clip.samples), PACKET):
                packet = clip.samples[first : first + PACKET]
                due = began + (first + len(packet)) / SAMPLE_RATE
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                await session.send(packet.tobytes())
            await session.end()

        speaking = asyncio.create_task(speak())
        async for message in session:
            event = to_event(message)
            if event is not None:
                told.append(Told(time.monotonic() - began, event))
        await speaking
    return told


def to_event(message: ServerMessage) -> Event | None:
    """Turn a message back into the event that it was made of, as far as delays are concerned."""

    def samples(seconds: float) -> int:
        return round(seconds * SAMPLE_RATE)

    match message:
        case messages.SpeechEnded(channel=channel, segment=segment, end=end, lag=lag):
            return SpeechEnded(channel, segment, samples(end), samples(lag))
        case messages.Partial() as m:
            return Partial(
                m.channel,
                m.segment,
                m.settled,
                m.volatile,
                samples(m.start),
                samples(m.end),
                m.language,
                samples(m.lag),
            )
        case messages.Final() as m:
            return Final(
                channel=m.channel,
                segment=m.segment,
                text=m.text,
                start=samples(m.start),
                end=samples(m.end),
                language=m.language,
                language_probability=0.0,
                words=(),
                avg_logprob=0.0,
                no_speech_probability=0.0,
                is_endpoint=m.is_endpoint,
                reason=m.reason,
                lag=samples(m.lag),
            )
        case _:
            return None


def cpu_seconds(served: Served) -> float:
    """Return the processor time that the service's processes have had."""
    times = [each.cpu_times() for each in served.processes()]
    return float(sum(each.user + each.system for each in times))


def row(result: Result) -> dict[str, float]:
    """Reduce the measurements to what the table shows."""
    d = result.delays
    return {
        "shown_p50": round(delays.percentile(d.shown_s, 50), 2),
        "shown_p95": round(delays.percentile(d.shown_s, 95), 2),
        "settled_p50": round(delays.percentile(d.settled_s, 50), 2),
        "settled_p95": round(delays.percentile(d.settled_s, 95), 2),
        "final_p50": round(delays.percentile(d.final_s, 50), 2),
        "final_p95": round(delays.percentile(d.final_s, 95), 2),
        "changed_percent": round(100 * d.num_changed / max(1, d.num_shown), 1),
        "held_changed_percent": round(100 * d.num_held_changed / max(1, d.num_held), 1),
        "words": len(d.shown_s),
        "error_percent": round(result.errors.streamed.rate, 2),
        "whole_error_percent": round(result.errors.whole.rate, 2),
    }


def report(rows: dict[int, dict[str, float]]) -> None:
    """Print a column for each number of streams; delays in seconds from the end of the word."""
    print(f"{'streams':>24}" + "".join(f"{number:>9}" for number in rows))
    for name in next(iter(rows.values())):
        print(f"{name:>24}" + "".join(f"{row[name]:9.2f}" for row in rows.values()))


if __name__ == "__main__":
    asyncio.run(main())
