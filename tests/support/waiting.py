"""Waiting in tests: for a condition, not for a time; or in a time that no machine can disturb."""

from __future__ import annotations

import asyncio
import functools
import selectors
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, ParamSpec

import pytest
import websockets

P = ParamSpec("P")

LIMIT_S = 30.0  # for what takes a moment; a machine that stands still for a second is forgiven


async def until(holds: Callable[[], object], limit_s: float = LIMIT_S) -> None:
    """Return once something holds.

    Raises:
        TimeoutError: it does not, whatever the machine was busy with.
    """
    async with asyncio.timeout(limit_s):
        while not holds():
            await asyncio.sleep(0.01)


async def until_closed(socket: Any) -> AsyncIterator[Any]:
    """Return what a WebSocket receives until it is closed."""
    try:
        while True:
            yield await asyncio.wait_for(socket.recv(), 30)
    except websockets.ConnectionClosed:
        return


class VirtualClock(selectors.DefaultSelector):
    """Time that passes only while a loop has nothing to do, and then at once.

    It stands in for the selector that a loop sleeps in. There is nothing outside to wait for: no
    sockets, no threads.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0  # seconds

    def select(self, timeout: float | None = None) -> Any:
        found = super().select(0)
        if not found and timeout != 0:
            assert timeout is not None, "everyone waits for someone else"
            self.now += timeout
        return found

    def jump(self, seconds: float) -> None:
        """Let time pass in which the process stood still."""
        self.now += seconds


def in_virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a test without sockets, threads and async fixtures so that no time is lost or wasted.

    `asyncio.get_running_loop().time()` and `time.monotonic()` are its clock.
    """

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        clock = VirtualClock()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(time, "monotonic", lambda: clock.now)
            with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(clock)) as runner:
                runner.run(test(*args, **kwargs))

    return run


def stand_still(seconds: float) -> None:
    """Let a test's machine stand still; call it within `in_virtual_time`."""
    clock = asyncio.get_running_loop()._selector  # type: ignore[attr-defined]
    assert isinstance(clock, VirtualClock)
    clock.jump(seconds)
