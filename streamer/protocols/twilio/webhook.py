"""Finals sent to an HTTP address, in order, without holding up the call that they come from."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Self
from urllib.parse import urlsplit

logger = logging.getLogger(__name__)

MAX_WAITING = 256  # messages of one call not delivered yet
ANSWER_TIMEOUT_S = 10.0  # for one answer
MAX_ATTEMPTS = 5
FIRST_PAUSE_S = 0.5  # before the second attempt, then twice as long each time
FLUSH_TIMEOUT_S = 20.0  # that the last messages get after the call ended
MAX_LINE_BYTES = 64 * 1024  # of an answer, of which only the first line counts
# answers that ask to come back later; other 3xx and 4xx mean that it will never work
TRANSIENT_STATUSES = frozenset({408, 425, 429})


class Webhook:
    """Posts the messages of one call. An async context manager: leaving it delivers what waits.

    Attributes:
        num_lost: messages that were not delivered.
    """

    def __init__(self, url: str) -> None:
        """Prepare for one call.

        Args:
            url: where to; empty for nowhere.
        """
        self.num_lost = 0
        self._url = url
        self._waiting: asyncio.Queue[str | None] = asyncio.Queue(MAX_WAITING)
        self._worker: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        if self._url:
            self._worker = asyncio.create_task(self._deliver())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._worker is None:
            return
        try:
            async with asyncio.timeout(FLUSH_TIMEOUT_S):
                await self._waiting.put(None)
                await self._worker
        except TimeoutError:
            self.num_lost += self._waiting.qsize()
            logger.warning("webhook: gave up on %d messages of a call", self.num_lost)
        finally:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)

    def post(self, text: str) -> None:
        """Queue a JSON text; drop it, and count that, where too many wait already."""
        if self._worker is None:
            return
        try:
            self._waiting.put_nowait(text)
        except asyncio.QueueFull:
            self.num_lost += 1
            logger.warning("webhook: %d messages wait, dropped one", MAX_WAITING)

    async def _deliver(self) -> None:
        while (text := await self._waiting.get()) is not None:
            if not await self._try(text):
                self.num_lost += 1
                logger.warning("webhook: a message was not taken after %d attempts", MAX_ATTEMPTS)

    async def _try(self, text: str) -> bool:
        pause_s = FIRST_PAUSE_S
        for attempt in range(MAX_ATTEMPTS):
            if attempt:
                await asyncio.sleep(pause_s)
                pause_s *= 2
            try:
                async with asyncio.timeout(ANSWER_TIMEOUT_S):
                    status = await post(self._url, text)
            except (OSError, TimeoutError, ValueError) as error:  # unreachable, slow, no HTTP
                logger.debug("webhook: attempt %d: %s", attempt + 1, type(error).__name__)
                continue
            if 200 <= status < 300:
                return True
            if 300 <= status < 500 and status not in TRANSIENT_STATUSES:
                return False
        return False


async def post(url: str, text: str) -> int:
    """Post JSON over a connection of its own; return the status of the answer.

    Threads would do, but as many as there are calls could hang on one address.

    Raises:
        OSError: nobody answers.
        ValueError: what answers is not HTTP.
    """
    parts = urlsplit(url)
    is_secure = parts.scheme == "https"
    reader, writer = await asyncio.open_connection(
        parts.hostname,
        parts.port or (443 if is_secure else 80),
        ssl=is_secure or None,
        limit=MAX_LINE_BYTES,
    )
    try:
        body = text.encode()
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {parts.netloc.rpartition('@')[2]}\r\n"
            "Content-Type: application/json\r\nUser-Agent: wordwire\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        writer.write(head.encode() + body)
        await writer.drain()
        version, status, *_ = (await reader.readline()).decode("latin-1").split(" ", 2)
        if not version.startswith("HTTP/"):
            raise ValueError("expected an HTTP answer")
        return int(status)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
