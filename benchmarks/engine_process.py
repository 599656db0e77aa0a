"""What does an engine's own process cost a window, and what does it spare the event loop?

    python -m benchmarks.engine_process [--model tiny.en] [--streams 8] [--seconds 10]

The cost is the round trip of a window to an engine that only answers. What is spared is how late a
timer of the event loop fires while streams decode noise without pause: in this process the event
loop and the engine's thread share one interpreter lock.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, closing

import numpy as np

from benchmarks.support.hardware import describe
from engine.api import SAMPLE_RATE, Engine, Hypothesis, ModelInfo, StreamOptions, Window
from engine.config import EngineConfig
from engine.local import load_engine
from engine.process.remote import RemoteEngine, start_engine
from engine.process.wire import Recipe

TICK_S = 0.005
ROUNDS = 200


class SilentEngine:
    """Answers at once, with nothing."""

    @property
    def info(self) -> ModelInfo:
        return ModelInfo("silent", ("en",), "cpu", "float32")

    @asynccontextmanager
    async def stream(self, options: StreamOptions) -> AsyncIterator[SilentEngine]:
        yield self

    async def decode(self, window: Window) -> Hypothesis:
        return Hypothesis(window.start, window.end, (), "en", 1.0)


def make_silent(_argument: None) -> SilentEngine:
    return SilentEngine()


def noise(seconds: float, seed: int = 0) -> Window:
    samples = np.random.default_rng(seed).normal(0, 1e-3, int(seconds * SAMPLE_RATE))
    return Window(0, samples.astype(np.float32), is_final=True)


async def round_trip_ms(engine: Engine, seconds: float) -> float:
    """Measure the median time of one window of a length."""
    window, times = noise(seconds), []
    async with engine.stream(StreamOptions(language="en")) as stream:
        for _ in range(ROUNDS):
            start = time.perf_counter()
            await stream.decode(window)
            times.append(time.perf_counter() - start)
    return 1000 * float(np.median(times))


async def measure_loop(engine: Engine, num_streams: int, seconds: float) -> dict[str, float]:
    """Decode on a number of streams, and watch a timer meanwhile."""
    late, num_windows, end = [], 0, time.monotonic() + seconds

    async def decode(seed: int) -> None:
        nonlocal num_windows
        options = StreamOptions(language="en", temperatures=(0.0,))
        async with engine.stream(options) as stream:
            while time.monotonic() < end:
                await stream.decode(noise(4.0, seed))
                num_windows += 1

    async def tick() -> None:
        while time.monotonic() < end:
            start = time.perf_counter()
            await asyncio.sleep(TICK_S)
            late.append(1000 * (time.perf_counter() - start - TICK_S))

    await asyncio.gather(tick(), *(decode(seed) for seed in range(num_streams)))
    return {
        "windows_per_s": round(num_windows / seconds, 1),
        "timer_late_p50_ms": round(float(np.percentile(late, 50)), 2),
        "timer_late_p99_ms": round(float(np.percentile(late, 99)), 2),
        "timer_late_max_ms": round(max(late), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", default="tiny.en")
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=10.0)
    arguments = parser.parse_args()
    silent = start_engine(Recipe("benchmarks.engine_process", "make_silent", None))
    trips = {}
    for seconds in (1.0, 6.0, 30.0):
        trips[seconds] = round(asyncio.run(round_trip_ms(silent, seconds)), 2)
        print(f"round trip of {seconds:4.0f} s of audio: {trips[seconds]:6.2f} ms")
    silent.close()
    config = EngineConfig(model=arguments.model)
    places: dict[str, Callable[[], AbstractContextManager[Engine]]] = {
        "this process": lambda: closing(load_engine(config)),
        "its own": lambda: closing(_start(config)),
    }
    rows = {}
    for name, load in places.items():
        with load() as engine:
            asyncio.run(measure_loop(engine, arguments.streams, 2.0))  # warm-up
            rows[name] = asyncio.run(measure_loop(engine, arguments.streams, arguments.seconds))
        print(f"engine in {name:12}: {rows[name]}")
    result = {"benchmark": "engine_process", "round_trip_ms": trips, **rows, **describe()}
    print(json.dumps(result))


def _start(config: EngineConfig) -> RemoteEngine:
    return start_engine(Recipe("engine.local", "load_engine", config))


if __name__ == "__main__":
    main()
