"""How many streaming windows a second, against faster-whisper on the same windows and cores?

    python -m benchmarks.windows [--model base] [--positions 8]

A window of 2 to 10 s comes a second after the one before it in the same stream, as in live
transcription; only the later one is timed. faster-whisper decodes it as its users do: greedily,
from nothing. Both take turns in one process, on the same threads.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from collections import defaultdict

import faster_whisper
import numpy as np

from benchmarks.hardware import describe
from benchmarks.peer import peer_folder
from benchmarks.recordings import list_recordings
from engine.api import SAMPLE_RATE, Samples, StreamOptions, Window
from engine.config import EngineConfig
from engine.local import load_engine

SECONDS = (2, 4, 6, 8, 10)
STRIDE = 13  # seconds between the positions at which windows begin


def time_peer(model: faster_whisper.WhisperModel, audio: Samples) -> float:
    start = time.perf_counter()
    segments, _ = model.transcribe(
        audio,
        language="en",
        beam_size=1,
        temperature=0.0,
        condition_on_previous_text=False,
    )
    list(segments)  # they are decoded as they are asked for
    return time.perf_counter() - start


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="base")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--positions", type=int, default=8)
    parser.add_argument("--peers", nargs="*", default=["int8", "float32"])
    arguments = parser.parse_args()
    num_threads = len(os.sched_getaffinity(0))
    longform = next(r for r in list_recordings() if r.category == "longform_en")
    audio = longform.read()
    engine = load_engine(EngineConfig(model=arguments.model, dtype=arguments.dtype))
    with peer_folder(arguments.model) as folder:
        peers = {
            dtype: faster_whisper.WhisperModel(
                folder, device="cpu", compute_type=dtype, cpu_threads=num_threads
            )
            for dtype in arguments.peers
        }
    times: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    try:
        for position in range(arguments.positions + 1):
            begin = (5 + position * STRIDE) * SAMPLE_RATE
            for seconds in SECONDS:
                window = Window(begin, audio[begin : begin + seconds * SAMPLE_RATE])
                earlier = Window(begin, window.audio[: (seconds - 1) * SAMPLE_RATE])
                async with engine.stream(StreamOptions(language="en")) as stream:
                    await stream.decode(earlier)
                    start = time.perf_counter()
                    await stream.decode(window)
                    ours = time.perf_counter() - start
                measured = {"wordwire": ours} | {
                    name: time_peer(peer, window.audio) for name, peer in peers.items()
                }
                if position:  # the first one warms up
                    for name, duration in measured.items():
                        times[name][seconds].append(1000 * duration)
    finally:
        engine.close()
    print(f"{'median / p95 ms':>18}" + "".join(f"{s:>14} s" for s in SECONDS))
    medians = {}
    for name, by_seconds in times.items():
        medians[name] = {s: round(float(np.median(by_seconds[s])), 1) for s in SECONDS}
        cells = [
            f"{np.median(by_seconds[s]):8.0f} /{np.percentile(by_seconds[s], 95):5.0f} "
            for s in SECONDS
        ]
        label = f"wordwire {engine.info.dtype}" if name == "wordwire" else f"faster {name}"
        print(f"{label:>18}" + "".join(cells))
    for name in peers:
        ratios = [medians[name][s] / medians["wordwire"][s] for s in SECONDS]
        print(f"{'x ' + name:>18}" + "".join(f"{ratio:>14.1f}  " for ratio in ratios))
    print(json.dumps({"windows_ms": medians, "dtype": engine.info.dtype, **describe()}))


if __name__ == "__main__":
    asyncio.run(main())
