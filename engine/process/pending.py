"""Requests that an engine's process has not answered yet, and how long each may wait.

Time is what the thread that reads the answers has waited for them, not what has passed: where the
whole machine stood still, the answers are there and only have to be read.
"""

from __future__ import annotations

import asyncio
import logging
import math
from dataclasses import dataclass

from engine.api import Hypothesis, StreamLost, Window

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """How long an owner waits for its process, in seconds."""

    hang_s: float = 30.0  # without any answer while requests wait; then it is killed
    load_s: float = 1800.0  # until the engine is loaded, a download included; then it is killed
    window_s: float = 120.0  # for one window while others are answered; then it is given up
    # the same for a window that nobody awaits: all others rightly go before it
    background_s: float = 1800.0

    def of(self, window: Window) -> float:
        """Return how long a window may wait."""
        return self.window_s if math.isfinite(window.deadline) else self.background_s


@dataclass(slots=True)
class PendingRequest:
    """A request on its way, and the event loop that waits for it."""

    id: int
    future: asyncio.Future[Hypothesis | None]
    loop: asyncio.AbstractEventLoop
    expires_at: float  # on the clock of PendingRequests

    def resolve(self, outcome: Hypothesis | Exception | None) -> None:
        """Answer it, from any thread."""

        def settle() -> None:
            if self.future.done():  # cancelled meanwhile
                return
            if isinstance(outcome, Exception):
                self.future.set_exception(outcome)
            else:
                self.future.set_result(outcome)

        try:
            self.loop.call_soon_threadsafe(settle)
        except RuntimeError:
            logger.debug("an answer came after its loop was closed")


class PendingRequests:
    """Opens and decodes that wait. Not safe for threads: its owner holds a lock."""

    def __init__(self) -> None:
        self._requests: dict[int, PendingRequest] = {}
        self._clock_s = 0.0  # waited for answers since the start

    def __len__(self) -> int:
        return len(self._requests)

    def add(self, id: int, limit_s: float) -> asyncio.Future[Hypothesis | None]:
        """Note a request of the running event loop; its answer resolves the future."""
        loop = asyncio.get_running_loop()
        request = PendingRequest(id, loop.create_future(), loop, self._clock_s + limit_s)
        self._requests[id] = request
        return request.future

    def pop(self, id: int) -> PendingRequest | None:
        return self._requests.pop(id, None)

    def take_overdue(self, waited_s: float) -> list[PendingRequest]:
        """Move the clock on, and take out what has waited for too long."""
        self._clock_s += waited_s
        overdue = [r for r in self._requests.values() if r.expires_at < self._clock_s]
        for request in overdue:
            del self._requests[request.id]
        return overdue

    def lose_all(self) -> None:
        """Answer all with StreamLost."""
        lost, self._requests = self._requests, {}
        for request in lost.values():
            request.resolve(StreamLost("the engine's process is gone"))
