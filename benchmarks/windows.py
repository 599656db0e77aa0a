"""How many streaming windows a second, against faster-whisper on the same windows and cores?

    python -m benchmarks.windows [--model base] [--positions 8] [--streams 1]

A window of 2 to 10 s comes a second after the one before it in the same stream, as in live
transcription; only the later one is timed. faster-whisper decodes it as its users do: greedily,
from nothing. Both take turns in one process, on the same cores. With several streams, the windows
of all come at once, and the time is for each of them; the peer then has a worker for each core.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack

import faster_whisper
import numpy as np

from benchmarks.support.faster_whisper import lay_out
from benchmarks.support.hardware import describe
from benchmarks.support.recordings import list_recordings
from engine.api import SAMPLE_RATE, StreamOptions, Window
from engine.config import EngineConfig
from engine.local import LocalEngine, load_engine

SECONDS = (2, 4, 6, 8, 10)
STRIDE = 13  # seconds between the positions at which windows begin


async def time_ours(engine: LocalEngine, windows: Sequence[Window]) -> float:
    """Return the seconds that windows of several streams take, asked for at once."""
    async with AsyncExitStack() as stack:
        streams = [
            await stack.enter_async_context(engine.stream(StreamOptions(language="en")))
            for _ in windows
        ]
        for stream, window in zip(streams, windows, strict=True):
            await stream.decode(Window(window.start, window.audio[:-SAMPLE_RATE]))
        start = time.perf_counter()
        await asyncio.gather(*(s.decode(w) for s, w in zip(streams, windows, strict=True)))
        return time.perf_counter() - start


def time_peer(model: faster_whisper.WhisperModel, windows: Sequence[Window]) -> float:
    """Return the same for the peer, a thread for each window."""

    def transcribe(window: Window) -> None:
        segments, _ = model.transcribe(
            window.audio,
            language="en",
            beam_size=1,
            temperature=0.0,
            condition_on_previous_text=False,
        )
        list(segments)  # they are decoded as they are asked for

    start = time.perf_counter()
    with ThreadPoolExecutor(len(windows)) as pool:
        list(pool.map(transcribe, windows))
    return time.perf_counter() - start


def mean(medians: Mapping[int, float]) -> float:
    """Return the cost of a stream's window where all lengths are equally frequent."""
    return sum(medians.values()) / len(medians)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="base")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--positions", type=int, default=8)
    parser.add_argument("--streams", type=int, default=1)
    parser.add_argument("--peers", nargs="*", default=["int8", "float32"])
    arguments = parser.parse_args()
    count = arguments.streams
    num_cores = len(os.sched_getaffinity(0))
    num_workers = min(count, num_cores)
    longform = next(r for r in list_recordings() if r.category == "longform_en")
    audio = longform.read()
    engine = load_engine(EngineConfig(model=arguments.model, dtype=arguments.dtype))
    with lay_out(arguments.model) as folder:
        peers = {
            dtype: faster_whisper.WhisperModel(
                folder,
                device="cpu",
                compute_type=dtype,
                cpu_threads=num_cores // num_workers,
                num_workers=num_workers,
            )
            for dtype in arguments.peers
        }
    times: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    try:
        for position in range(arguments.positions + 1):
            for seconds in SECONDS:
                windows = []
                for stream in range(count):
                    begin = (5 + (position * count + stream) * STRIDE) * SAMPLE_RATE
                    begin %= len(audio) - max(SECONDS) * SAMPLE_RATE
                    windows.append(Window(begin, audio[begin : begin + seconds * SAMPLE_RATE]))
                measured = {"wordwire": await time_ours(engine, windows)} | {
                    name: time_peer(peer, windows) for name, peer in peers.items()
                }
                if position:  # the first one warms up
                    for name, duration in measured.items():
                        times[name][seconds].append(1000 * duration / count)
    finally:
        engine.close()
    print(f"{count} streams at once, ms for each window")
    print(f"{'median / p95 ms':>18}" + "".join(f"{s:>14} s" for s in SECONDS) + f"{'all':>10}")
    medians = {}
    for name, by_seconds in times.items():
        medians[name] = {s: round(float(np.median(by_seconds[s])), 1) for s in SECONDS}
        cells = [
            f"{np.median(by_seconds[s]):8.0f} /{np.percentile(by_seconds[s], 95):5.0f} "
            for s in SECONDS
        ]
        label = f"wordwire {engine.info.dtype}" if name == "wordwire" else f"faster {name}"
        print(f"{label:>18}" + "".join(cells) + f"{mean(medians[name]):8.0f}")
    for name in peers:
        ratios = [medians[name][s] / medians["wordwire"][s] for s in SECONDS]
        overall = mean(medians[name]) / mean(medians["wordwire"])
        cells = [f"{ratio:>14.1f}  " for ratio in ratios]
        print(f"{'x ' + name:>18}" + "".join(cells) + f"{overall:>10.1f}")
    print(
        json.dumps(
            {"windows_ms": medians, "streams": count, "dtype": engine.info.dtype, **describe()}
        )
    )


if __name__ == "__main__":
    asyncio.run(main())
