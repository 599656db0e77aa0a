"""The capacity measured is that of the engine, and measuring ends."""

from __future__ import annotations

import time

import pytest

from streamer.operations.capacity import PERIOD_S, measure_capacity
from tests.support.engines import CountingEngine, Pace
from tests.support.waiting import in_virtual_time


@in_virtual_time
async def test_an_engine_that_decodes_one_by_one_is_measured_as_that() -> None:
    sessions = await measure_capacity(CountingEngine(Pace(0.1, width=1)))
    assert sessions == pytest.approx(10 * PERIOD_S)


@in_virtual_time
async def test_batching_counts() -> None:
    sessions = await measure_capacity(CountingEngine(Pace(0.2, width=16)))
    assert sessions == pytest.approx(80 * PERIOD_S)


@in_virtual_time
async def test_a_slow_engine_is_measured_with_one_window() -> None:
    start = time.monotonic()
    sessions = await measure_capacity(CountingEngine(Pace(2.1, width=1)))
    assert sessions < 1 and time.monotonic() - start < 4


@in_virtual_time
async def test_an_engine_that_is_full_ends_the_measurement() -> None:
    engine = CountingEngine(Pace(0.01, width=100, max_streams=4))
    assert await measure_capacity(engine) > 100 * PERIOD_S
    assert engine.num_streams == 0
