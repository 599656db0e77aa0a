"""How much of a hypothesis does the previous one foretell, and does checking it change a token?

    python -m benchmarks.draft [--model base] [--dtype auto] [--windows 1000]

Windows of English speech grow by a second at a time and slide, each recording a stream of its own,
some streams at once. The same windows are decoded with drafts and without. Where the tokens
differ, the gap says how far apart the two tokens' log-probabilities are: rounding decides ties.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import statistics

import numpy as np

from benchmarks.support.growing import grow
from benchmarks.support.hardware import describe
from benchmarks.support.recordings import list_recordings
from benchmarks.support.teacher_forcing import TeacherForcing
from engine.api import Hypothesis, StreamOptions, Window
from engine.build import DEFAULT_FOLD
from engine.config import EngineConfig
from engine.local import LocalEngine, load_engine

CATEGORIES = ("read_en", "spontaneous_en", "longform_en")
LIMIT_S = 120.0  # of a recording
NUM_STREAMS = 8


async def decode(
    engine: LocalEngine, streams: list[list[Window]], has_drafts: bool
) -> list[list[Hypothesis]]:
    """Decode every stream's windows in order, NUM_STREAMS streams at a time."""
    gate = asyncio.Semaphore(NUM_STREAMS)

    async def run(windows: list[Window]) -> list[Hypothesis]:
        options = StreamOptions(language="en")
        async with gate:
            if has_drafts:
                async with engine.stream(options) as stream:
                    return [await stream.decode(window) for window in windows]
            found = []
            for window in windows:  # a new stream remembers nothing
                async with engine.stream(options) as stream:
                    found.append(await stream.decode(window))
            return found

    return list(await asyncio.gather(*(run(windows) for windows in streams)))


def find_difference(a: Hypothesis, b: Hypothesis) -> int:
    """Return the index of the first token that differs."""
    pairs = zip(a.tokens, b.tokens, strict=False)
    same = (n for n, (x, y) in enumerate(pairs) if x != y)
    return next(same, min(len(a.tokens), len(b.tokens)))


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="base")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--windows", type=int, default=1000, help="at least so many")
    arguments = parser.parse_args()
    streams: list[list[Window]] = []
    recordings = [r for r in list_recordings() if r.category in CATEGORIES]
    for recording in sorted(recordings, key=lambda r: r.name):
        if sum(map(len, streams)) < arguments.windows:
            streams.append(list(grow(recording.read(LIMIT_S))))
    engine = load_engine(
        EngineConfig(model=arguments.model, dtype=arguments.dtype, num_threads=arguments.threads)
    )
    try:
        plain = await decode(engine, streams, has_drafts=False)
        before = dataclasses.replace(engine.counters)
        drafted = await decode(engine, streams, has_drafts=True)
        after = engine.counters
        num_windows = sum(map(len, streams))
        num_tokens = sum(len(h.tokens) + 1 for hs in plain for h in hs)
        forced = TeacherForcing(engine, DEFAULT_FOLD)
        gaps = []
        for windows, alone, checked in zip(streams, plain, drafted, strict=True):
            for window, a, b in zip(windows, alone, checked, strict=True):
                if a.tokens != b.tokens:
                    at = find_difference(a, b)
                    gaps.append(forced.measure_gap(window, "en", a.tokens, b.tokens, at))
    finally:
        engine.close()
    num_accepted = after.num_accepted - before.num_accepted
    result = {
        "model": arguments.model,
        "dtype": engine.info.dtype,
        "windows": num_windows,
        "tokens_per_window": round(num_tokens / num_windows, 2),
        "steps_without": round(before.num_rows / num_windows, 2),
        "steps_with": round((after.num_rows - before.num_rows) / num_windows, 2),
        "accepted": round(num_accepted / num_tokens, 4),
        "proposals_accepted": round(num_accepted / (after.num_drafted - before.num_drafted), 4),
        "windows_that_differ": len(gaps),
        "gap_median": round(statistics.median(gaps), 5) if gaps else None,
        "gap_p95": round(float(np.percentile(gaps, 95)), 5) if gaps else None,
        "gap_max": round(max(gaps), 5) if gaps else None,
    }
    for name, value in result.items():
        print(f"{name:22}{value}")
    print(json.dumps({"draft": result, **describe()}))


if __name__ == "__main__":
    asyncio.run(main())
