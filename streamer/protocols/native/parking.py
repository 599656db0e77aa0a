"""Sessions whose clients are away: kept for a while, then finished, their finals for longer."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from streamer.protocols.native.session import StreamSession
from streamer.service import Service

logger = logging.getLogger(__name__)

MAX_PARKED = 1_000  # the oldest is given up for the next one


class Parking:
    """Keeps each session for the service's grace time, and what it said for its keep time."""

    def __init__(self, service: Service) -> None:
        self._service = service
        # session and the task that will end it, oldest first
        self._waiting: dict[str, tuple[StreamSession, asyncio.Task[None]]] = {}
        self._finished: dict[str, StreamSession] = {}
        self._finishing: set[asyncio.Task[None]] = set()  # of those that gave their place away

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    async def park(self, session: StreamSession) -> None:
        """Keep a session until its client takes it again or its time is over."""
        if len(self._waiting) >= MAX_PARKED:
            await self.evict_oldest()
        task = asyncio.create_task(self._keep(session), name=f"parked {session.id[:6]}")
        self._waiting[session.id] = session, task

    async def take(self, session_id: str) -> StreamSession | None:
        """Return a session to its client, or None where it is gone."""
        if session_id not in self._waiting:
            return None
        session, task = self._waiting.pop(session_id)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return session

    async def evict_oldest(self) -> bool:
        """Take the place of the session that waits longest, for one whose client is here.

        What its client said is still made final, and kept to be fetched.

        Returns:
            Whether there was one.
        """
        oldest = next(iter(self._waiting), None)
        if oldest is None:
            return False
        session = await self.take(oldest)
        assert session is not None
        logger.info("session %s gives its place to another", session.id[:6])
        session.leave()
        task = asyncio.create_task(self._finish(session), name=f"finishing {oldest[:6]}")
        self._finishing.add(task)
        task.add_done_callback(self._finishing.discard)
        return True

    def find(self, session_id: str) -> StreamSession | None:
        """Find a session that waits or has finished, to read what it said."""
        if session_id in self._waiting:
            return self._waiting[session_id][0]
        return self._finished.get(session_id)

    async def _keep(self, session: StreamSession) -> None:
        draining = self._service.draining
        if await _sleep(self._service.config.resume_grace_s, draining):
            # no client can come back to a service that stops
            self._waiting.pop(session.id, None)
            await session.expire()
            return
        logger.info("session %s: its client did not come back", session.id[:6])
        self._waiting.pop(session.id, None)
        await self._finish(session)

    async def _finish(self, session: StreamSession) -> None:
        """Make a session's text final, and keep it to be fetched."""
        if len(self._finished) >= MAX_PARKED:
            del self._finished[next(iter(self._finished))]
        self._finished[session.id] = session
        try:
            await session.expire()
            await _sleep(self._service.config.results_keep_s, self._service.draining)
        finally:
            self._finished.pop(session.id, None)


async def _sleep(seconds: float, event: asyncio.Event) -> bool:
    """Sleep, but no longer than until the event; tell whether it came."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()
