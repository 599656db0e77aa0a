"""The capacity measured is that of the engine, and measuring ends."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import pytest

from engine.api import EngineBusy, Hypothesis, ModelInfo, StreamOptions, Window
from streamer.operations.capacity import PERIOD_S, measure_capacity
from tests.support.waiting import in_virtual_time


class TimedEngine:
    """Decodes up to `width` windows at once, each in `cost_s`."""

    def __init__(self, cost_s: float, width: int, max_streams: int = 10_000) -> None:
        self._cost_s = cost_s
        self._room = asyncio.Semaphore(width)
        self._max_streams = max_streams
        self.num_streams = 0

    @property
    def info(self) -> ModelInfo:
        return ModelInfo("timed", ("en",), "cpu", "float32")

    @contextlib.asynccontextmanager
    async def stream(self, options: StreamOptions) -> AsyncIterator[TimedEngine]:
        if self.num_streams >= self._max_streams:
            raise EngineBusy("no room")
        self.num_streams += 1
        try:
            yield self
        finally:
            self.num_streams -= 1

    async def decode(self, window: Window) -> Hypothesis:
        async with self._room:
            await asyncio.sleep(self._cost_s)
        return Hypothesis(window.start, window.end, (), "en", 1.0)


@in_virtual_time
async def test_an_engine_that_decodes_one_by_one_is_measured_as_that() -> None:
    sessions = await measure_capacity(TimedEngine(0.1, width=1))
    assert sessions == pytest.approx(10 * PERIOD_S)


@in_virtual_time
async def test_batching_counts() -> None:
    sessions = await measure_capacity(TimedEngine(0.2, width=16))
    assert sessions == pytest.approx(80 * PERIOD_S)


@in_virtual_time
async def test_a_slow_engine_is_measured_with_one_window() -> None:
    start = time.monotonic()
    sessions = await measure_capacity(TimedEngine(2.1, width=1))
    assert sessions < 1 and time.monotonic() - start < 4


@in_virtual_time
async def test_an_engine_that_is_full_ends_the_measurement() -> None:
    engine = TimedEngine(0.01, width=100, max_streams=4)
    assert await measure_capacity(engine) > 100 * PERIOD_S
    assert engine.num_streams == 0
