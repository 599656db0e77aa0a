"""The WebSockets that are open: how many there may be, and which of them lost their key."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from starlette.types import Send

from streamer import wire
from streamer.access.keys import ApiKey

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class OpenSocket:
    """One socket, from before its handshake until its application has returned."""

    key: ApiKey
    send: Send
    closing: asyncio.Task[None] | None = None  # set once its key is revoked

    async def close(self) -> None:
        """Send the close for a revoked key; the application receives a disconnect."""
        with contextlib.suppress(OSError, RuntimeError):  # it is closed already
            await self.send(
                {
                    "type": "websocket.close",
                    "code": wire.CLOSE_PROTOCOL_ERROR,
                    "reason": "key revoked",
                }
            )


class OpenSockets:
    """All sockets of a service, by address."""

    def __init__(self, max_sockets: int, max_per_address: int) -> None:
        """Begin with none.

        Args:
            max_per_address: 0 for no limit.
        """
        self._max_sockets = max_sockets
        self._max_per_address = max_per_address
        self._by_address: Counter[str] = Counter()
        self._sockets: set[OpenSocket] = set()

    def __len__(self) -> int:
        return len(self._sockets)

    def has_room(self, address: str) -> bool:
        """Return whether one more of this address may open."""
        most = self._max_per_address
        return len(self._sockets) < self._max_sockets and not 0 < most <= self._by_address[address]

    @contextlib.asynccontextmanager
    async def hold(self, address: str, key: ApiKey, send: Send) -> AsyncIterator[OpenSocket]:
        """Count a socket for as long as the context is open."""
        socket = OpenSocket(key, send)
        self._sockets.add(socket)
        self._by_address[address] += 1
        try:
            yield socket
        finally:
            self._sockets.remove(socket)
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]
            if socket.closing is not None:
                socket.closing.cancel()
                await asyncio.gather(socket.closing, return_exceptions=True)

    def close_revoked(self, is_valid: Callable[[ApiKey], bool]) -> None:
        """Close the sockets whose keys are no longer good, whether they send or only listen."""
        for socket in self._sockets:
            if socket.closing is None and not is_valid(socket.key):
                logger.info("a socket of key %r is closed: the key is gone", socket.key.name)
                socket.closing = asyncio.create_task(socket.close())
