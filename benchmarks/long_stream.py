"""Do times drift, and does memory grow, in a session that goes on and on?

    python -m benchmarks.long_stream [--recording lj_and_readers_13min.opus] [--model base]

Starts the service, streams a long recording to one session as fast as it is taken, and notes the
memory of all its processes on the way. Then the recording is posted as a file, and the times of
the words that both texts have are compared.
"""

from __future__ import annotations

import argparse
import asyncio
import difflib
import json
from dataclasses import dataclass, field

import httpx
import numpy as np

from benchmarks.support.hardware import describe
from benchmarks.support.recordings import Recording, list_recordings
from benchmarks.support.service import Served, serving
from clients.client import connect
from engine.api import SAMPLE_RATE, Samples
from streamer.protocol import Final, Start
from streamer.transcription.word import key

FIRST_S = 60.0  # memory is compared with what it was after this much audio
REST_S = 25.0  # before memory is measured for the last time: what was freed is given back
PACKET = SAMPLE_RATE // 2


@dataclass(frozen=True, slots=True)
class Said:
    """A word and when it begins, in seconds."""

    text: str
    start: float


@dataclass(slots=True)
class Streamed:
    """What came of the stream."""

    words: list[Said] = field(default_factory=list)
    memory: list[tuple[float, float]] = field(default_factory=list)  # seconds of audio, MiB


async def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", default="base")
    parser.add_argument("--recording", default="lj_and_readers_13min.opus")
    arguments = parser.parse_args()
    recording = next(r for r in list_recordings() if r.path.name == arguments.recording)
    samples = recording.read()
    async with serving("--model", arguments.model) as served:
        streamed = await stream(served, samples)
        words = await post(served, recording)
    seconds = len(samples) / SAMPLE_RATE
    growth = measure_growth(streamed.memory)
    peak = max(mib for _, mib in streamed.memory)
    times, apart = compare(streamed.words, words)
    slope = 60_000 * np.polyfit(times, apart, 1)[0] if len(times) > 1 else 0.0  # ms a minute
    row = {
        "seconds": round(seconds, 1),
        "memory_mib": {f"{at:.0f}": round(mib) for at, mib in streamed.memory},
        "growth_mib": round(growth, 1),
        "peak_mib": round(peak),
        "words": len(streamed.words),
        "words_matched": len(times),
        "apart_ms_p50": round(float(np.median(np.abs(apart))) * 1000),
        "apart_ms_p95": round(float(np.percentile(np.abs(apart), 95)) * 1000),
        "drift_ms_per_min": round(float(slope), 2),
        "backward": sum(
            b.start < a.start for a, b in zip(streamed.words, streamed.words[1:], strict=False)
        ),
    }
    print(f"{seconds:.0f} s of audio, {row['words']} words, {len(times)} of them in both texts")
    print(
        f"starts apart by {row['apart_ms_p50']} ms (median), {row['apart_ms_p95']} ms (p95);",
        end="",
    )
    print(f" drift {row['drift_ms_per_min']} ms a minute; {row['backward']} steps back in time")
    print(
        f"memory {growth:+.1f} MiB from {FIRST_S:.0f} s of audio to {REST_S:.0f} s after the end;",
        end="",
    )
    print(f" {peak:.0f} MiB at most meanwhile")
    print(json.dumps({"long_stream": row, "model": arguments.model, **describe()}))


async def stream(served: Served, samples: Samples) -> Streamed:
    """Stream samples as fast as they are taken; measure memory about every half minute of text."""
    found = Streamed()
    start = Start(encoding="pcm_f32le", sample_rate=SAMPLE_RATE, language="en", words=True)
    async with connect(served.ws, start) as session:

        async def send() -> None:
            for first in range(0, len(samples), PACKET):
                await session.send(samples[first : first + PACKET].tobytes())
            await session.end()

        sending = asyncio.create_task(send())
        async for message in session:
            if not isinstance(message, Final):
                continue
            found.words += [Said(word.text, word.start) for word in message.words or ()]
            last = found.memory[-1][0] if found.memory else 0.0
            if message.end - last >= FIRST_S / 2:
                found.memory.append((message.end, served.measure_memory()))
        await sending
    await asyncio.sleep(REST_S)
    found.memory.append((len(samples) / SAMPLE_RATE, served.measure_memory()))
    return found


async def post(served: Served, recording: Recording) -> list[Said]:
    """Post the recording as a file; return its words."""
    async with httpx.AsyncClient(base_url=served.url, timeout=None) as http:
        answer = await http.post(
            "/v1/audio/transcriptions",
            data={
                "model": "whisper-1",
                "language": "en",
                "response_format": "verbose_json",
                "timestamp_granularities[]": "word",
            },
            files={"file": (recording.path.name, recording.path.read_bytes())},
        )
    answer.raise_for_status()
    return [Said(word["word"], word["start"]) for word in answer.json()["words"]]


def measure_growth(memory: list[tuple[float, float]]) -> float:
    """Return the MiB that the end has over the first point behind FIRST_S."""
    first = next(mib for at, mib in memory if at >= FIRST_S)
    return memory[-1][1] - first


def compare(streamed: list[Said], whole: list[Said]) -> tuple[list[float], list[float]]:
    """Align two lists of words; return where the words are that both have, and how far apart."""
    a, b = [key(word.text) for word in streamed], [key(word.text) for word in whole]
    times, apart = [], []
    for block in difflib.SequenceMatcher(a=a, b=b, autojunk=False).get_matching_blocks():
        for index in range(block.size):
            one, other = streamed[block.a + index], whole[block.b + index]
            times.append(other.start)
            apart.append(one.start - other.start)
    return times, apart


if __name__ == "__main__":
    asyncio.run(main())
