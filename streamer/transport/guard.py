"""The bounds of a TCP connection below its messages.

How many there may be, how long a request's head may take, how many pongs may wait.

uvicorn waits for ever for the first bytes of a request. A connection that says nothing, or a letter
a minute, would hold its descriptor for as long as its owner likes.
"""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

MAX_UNREAD_BYTES = 256 * 1024  # of pongs; text waits at 64 KiB and is given up by its sender
BUSY_RESPONSE = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 0\r\n"
    b"Connection: close\r\n\r\n"
)


class GuardedProtocol(H11Protocol):
    """uvicorn's HTTP protocol with bounds. `guard` sets them."""

    max_connections: int
    head_timeout_s: float

    _head_timer: asyncio.TimerHandle | None = None  # runs while a request's head is awaited

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.max_connections:
            transport.write(BUSY_RESPONSE)
            transport.close()
            return
        self._arm()

    def data_received(self, data: bytes) -> None:
        if self.conn.their_state is h11.IDLE:
            self._arm()
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._disarm()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        super().connection_lost(exc)

    def _arm(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.head_timeout_s, self._give_up)

    def _disarm(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        self._head_timer = None
        self.transport.abort()


def guard(max_connections: int, head_timeout_s: float) -> type[GuardedProtocol]:
    """Make a protocol class with these bounds; uvicorn builds its protocols from a class."""
    return type(
        "GuardedProtocol",
        (GuardedProtocol,),
        {"max_connections": max_connections, "head_timeout_s": head_timeout_s},
    )


class GuardedSocket(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket protocol, which answers pings whether the answers are read or not."""

    def handle_ping(self) -> None:
        if self.transport.get_write_buffer_size() > MAX_UNREAD_BYTES:
            self.transport.abort()
            return
        super().handle_ping()
