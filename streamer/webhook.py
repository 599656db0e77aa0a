"""Finals sent to an HTTP address, in order, without holding up the call that they come from."""

from __future__ import annotations

import asyncio
import logging
import urllib.error
import urllib.request
from types import TracebackType
from typing import Self

logger = logging.getLogger(__name__)

MAX_WAITING = 256  # messages of one call not delivered yet
TIMEOUT_S = 10.0  # for one answer
MAX_ATTEMPTS = 5
FIRST_PAUSE_S = 0.5  # before the second attempt, then twice as long each time
FLUSH_S = 20.0  # that the last messages get after the call ended
# answers that ask to come back later; other 4xx mean that it will never work
TRANSIENT = frozenset({408, 425, 429})


class Webhook:
    """Posts the messages of one call. An async context manager: leaving it delivers what waits.

    Attributes:
        num_lost: messages that were not delivered.
    """

    def __init__(self, url: str) -> None:
        """
        Args:
            url: where to; empty for nowhere.
        """
        self.num_lost = 0
        self._url = url
        self._waiting: asyncio.Queue[str | None] = asyncio.Queue(MAX_WAITING)
        self._worker: asyncio.Task[None] | None = None
        # no proxy from the environment: only the configuration says where text goes
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    async def __aenter__(self) -> Self:
        if self._url:
            self._worker = asyncio.create_task(self._deliver())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._worker is None:
            return
        try:
            async with asyncio.timeout(FLUSH_S):
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
                await asyncio.to_thread(self._post, text)
                return True
            except urllib.error.HTTPError as error:
                error.close()
                if 400 <= error.code < 500 and error.code not in TRANSIENT:
                    return False
            except OSError as error:  # refused, unreachable, timed out
                logger.debug("webhook: attempt %d: %s", attempt + 1, type(error).__name__)
        return False

    def _post(self, text: str) -> None:
        request = urllib.request.Request(
            self._url,
            data=text.encode(),
            headers={"Content-Type": "application/json", "User-Agent": "wordwire"},
            method="POST",
        )
        with self._opener.open(request, timeout=TIMEOUT_S) as response:
            response.read(1024)
