"""Does the GPU's memory stay flat while streams come and go, minute after minute?

    python -m benchmarks.cuda.churn --model base/ --data FOLDER --seconds 600 --out churn.jsonl

The whole engine, as the service uses it: each of many speakers opens a stream, asks for windows
that grow, each with the last as its draft, for a final with word times, and leaves. One in eight
leaves during a decode. Memory is read every ten seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from engine.api import SAMPLE_RATE, Samples, StreamOptions, Window
from engine.local import LocalEngine, load_engine

CATEGORIES = ("read_en", "phone_8k", "noisy_en", "lang")
LEAVES = 0.125  # the share of streams that are left while a window is decoded
EVERY_S = 10.0  # between two looks at memory
SETTLED_S = 60.0  # memory may grow until then


async def speak(engine: LocalEngine, sounds: list[Samples], draw: random.Random) -> None:
    """Open a stream, follow a recording to its end, and leave; or leave before."""
    sound = draw.choice(sounds)
    leaves = draw.random() < LEAVES
    async with engine.stream(StreamOptions()) as stream:
        ends = [*range(SAMPLE_RATE, len(sound), SAMPLE_RATE), len(sound)]
        stop = draw.randrange(len(ends)) if leaves else None
        for n, end in enumerate(ends):
            is_final = end == len(sound)
            decode = stream.decode(Window(0, sound[:end], is_final=is_final, word_times=is_final))
            if n == stop:
                task = asyncio.create_task(decode)
                await asyncio.sleep(draw.random() * 0.02)
                task.cancel()
                await asyncio.wait([task])
                return
            await decode


def read_memory(engine: LocalEngine) -> dict[str, float]:
    """Look at what this process holds, on the GPU and off it, in MB; and at the counters."""
    listed = subprocess.run(
        ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    pairs = [line.split(",") for line in listed.splitlines() if line.count(",") == 1]
    own = [used.strip() for pid, used in pairs if pid.strip() == str(os.getpid())]
    free, total = torch.cuda.mem_get_info()
    return {
        "allocated_mb": torch.cuda.memory_allocated() / 1e6,
        "reserved_mb": torch.cuda.memory_reserved() / 1e6,
        "nvidia_smi_mb": float(own[0]) if own and own[0].isdigit() else -1.0,
        "card_used_mb": (total - free) / 1e6,  # others' share included
        "host_peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
        "encoded": engine.counters.num_encoded,
        "attempts": engine.counters.num_attempts,
        "passes": engine.counters.num_passes,
        "graph_replays": engine.counters.num_graph_passes,
        "failures": engine.counters.num_failures,
    }


async def churn(
    engine: LocalEngine,
    sounds: list[Samples],
    num_speakers: int,
    seconds: float,
    note: Callable[[dict[str, float]], None],
) -> list[dict[str, float]]:
    """Keep a number of speakers busy, and record memory as time goes on."""
    began = time.monotonic()
    num_streams = 0
    rows = []

    async def follow(number: int) -> None:
        nonlocal num_streams
        draw = random.Random(number)
        while time.monotonic() < began + seconds:
            num_streams += 1
            await speak(engine, sounds, draw)

    async def watch() -> None:
        while True:
            row = {"at_s": time.monotonic() - began, "streams": num_streams}
            row |= await asyncio.to_thread(read_memory, engine)
            rows.append({name: round(value, 1) for name, value in row.items()})
            note(rows[-1])
            if time.monotonic() > began + seconds:
                return
            await asyncio.sleep(EVERY_S)

    async with asyncio.TaskGroup() as group:
        for number in range(num_speakers):
            group.create_task(follow(number))
        group.create_task(watch())
    return rows


def summarise(rows: list[dict[str, float]], num_leaked: int) -> dict[str, float]:
    """Return totals, and the least and the most that was held once everything ran."""
    settled = [row for row in rows if row["at_s"] >= min(SETTLED_S, rows[-1]["at_s"])]
    last = rows[-1]
    result: dict[str, float] = {
        "seconds": last["at_s"],
        "streams": last["streams"],
        "windows": last["encoded"],
        "passes": last["passes"],
        "eager_passes": last["passes"] - last["graph_replays"],
        "failures": last["failures"],
        "pages_leaked": num_leaked,
    }
    for name in ("allocated_mb", "reserved_mb", "nvidia_smi_mb", "host_peak_mb"):
        values = [row[name] for row in settled]
        result |= {f"{name}_least": min(values), f"{name}_most": max(values)}
    return result


def main() -> None:
    # these read recordings of any kind, for which a machine with a GPU may lack the packages
    from benchmarks.support.arguments import add_engine_arguments, append_line, choose_engine
    from benchmarks.support.recordings import list_recordings

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add_engine_arguments(parser, at_once=64)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--out", type=Path, help="add a line of JSON for every look here")
    arguments = parser.parse_args()
    sounds = [
        recording.read(30.0)
        for recording in list_recordings(arguments.data)
        if recording.category in CATEGORIES and 1 <= recording.duration_s <= 30
    ]
    engine = load_engine(choose_engine(arguments))
    try:
        rows = asyncio.run(
            churn(
                engine,
                sounds,
                arguments.at_once,
                arguments.seconds,
                partial(append_line, arguments.out),
            )
        )
        time.sleep(1.0)  # the engine's thread lets go of what was left last
        result = summarise(rows, engine.num_pages - engine.num_free_pages)
    finally:
        engine.close()
    for name, value in result.items():
        print(f"{name:22} {value:12.1f}")
    print(json.dumps({"churn": result}))


if __name__ == "__main__":
    main()
