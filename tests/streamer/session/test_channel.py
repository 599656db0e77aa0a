"""A channel's windows over an engine that never answers."""

from __future__ import annotations

import asyncio
import time
from collections import deque

import numpy as np
import pytest

from engine.api import StreamLost, Window
from streamer.session.channel import WINDOW_TIMEOUT_S, Channel
from streamer.transcription.settings import SessionSettings
from tests.support.engines import CountingEngine, Pace
from tests.support.waiting import in_virtual_time

WINDOW = Window(0, np.zeros(16_000, np.float32), deadline=5.0)


@in_virtual_time
async def test_a_window_that_is_never_answered_is_lost() -> None:
    channel, start = Channel(SessionSettings(), deque(), 0), time.monotonic()
    with pytest.raises(StreamLost, match="in time"):
        await channel.decode(CountingEngine(Pace(cost_s=1e6)), WINDOW)
    assert time.monotonic() - start == pytest.approx(WINDOW_TIMEOUT_S)
    await channel.close_stream()


@in_virtual_time
async def test_a_stream_that_never_opens_costs_its_window_no_more() -> None:
    channel, engine, start = (
        Channel(SessionSettings(), deque(), 0),
        CountingEngine(),
        time.monotonic(),
    )
    engine.is_hung = True
    with pytest.raises(StreamLost, match="in time"):
        await channel.decode(engine, WINDOW)
    assert time.monotonic() - start == pytest.approx(WINDOW_TIMEOUT_S, abs=0.1)
    engine.is_hung = False
    assert await channel.decode(engine, WINDOW) is not None
    await channel.close_stream()


@in_virtual_time
async def test_a_cancelled_window_is_cancelled_and_not_lost() -> None:
    channel = Channel(SessionSettings(), deque(), 0)
    decoding = asyncio.ensure_future(channel.decode(CountingEngine(Pace(cost_s=1e6)), WINDOW))
    await asyncio.sleep(1.0)
    decoding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await decoding
    await channel.close_stream()
