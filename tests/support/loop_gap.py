"""How long the event loop is held at a time, in the processor time of its thread.

Processor time, not time on the wall: another process on the machine does not count, so that a busy
machine fails no test.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

TICK_S = 0.002


@dataclass
class LoopGap:
    """The largest gap between two ticks so far."""

    cpu_s: float = 0.0
    wall_s: float = 0.0


@contextlib.contextmanager
def measure_loop_gap() -> Iterator[LoopGap]:
    """Tick in the running loop for as long as the context is open."""
    loop, found = asyncio.get_running_loop(), LoopGap()
    last = time.thread_time(), time.monotonic()
    timer: asyncio.TimerHandle

    def tick() -> None:
        nonlocal last, timer
        now = time.thread_time(), time.monotonic()
        found.cpu_s = max(found.cpu_s, now[0] - last[0])
        found.wall_s = max(found.wall_s, now[1] - last[1])
        last = now
        timer = loop.call_later(TICK_S, tick)

    timer = loop.call_later(TICK_S, tick)
    try:
        yield found
        tick()
    finally:
        timer.cancel()
