"""The bounds of a TCP connection below its messages.

How many there may be, how long a request's head and a handshake may take, how many pongs may wait.

uvicorn waits for ever for the first bytes of a request. A connection that says nothing, or a letter
a minute, would hold its descriptor for as long as its owner likes. A handshake whose head
websockets cannot read is neither answered nor closed by uvicorn.
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import socket
from asyncio.transports import BaseTransport
from collections.abc import Callable
from http import HTTPStatus

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidMessage
from websockets.http11 import Request

from streamer.access.refusal import Refusal
from streamer.transport.pieces import Pieces

logger = logging.getLogger(__name__)

MAX_UNREAD_BYTES = 256 * 1024  # of pongs; text waits at 64 KiB and is given up by its sender
UNREADABLE_MESSAGE = (
    "expected a WebSocket handshake of at most 128 headers of at most 8 KiB each, without a body"
)
LOST = "wordwire.lost"  # the ASGI extension: an asyncio.Event, set once the client is gone
POLL_S = 2.0  # between two looks at a socket that is not read
TCP_CLOSE = 7  # the state of a connection that was reset (Linux, net/tcp_states.h)
BUSY_RESPONSE = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 0\r\n"
    b"Connection: close\r\n\r\n"
)


class GuardedProtocol(H11Protocol):
    """uvicorn's HTTP protocol with bounds. `guard` sets them."""

    max_connections: int
    head_timeout_s: float

    _head_timer: asyncio.TimerHandle | None = None  # runs while a request's head is awaited
    _pieces: Pieces

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._pieces = Pieces(self.loop, self._parse, self.transport.pause_reading, self._read_on)
        if len(self.connections) > self.max_connections:
            transport.write(BUSY_RESPONSE)
            transport.close()
            return
        self._arm()

    def data_received(self, data: bytes) -> None:
        self._pieces.put(data)

    def _parse(self, data: bytes) -> None:
        protocol = self.transport.get_protocol()
        if protocol is not self:  # the connection has become a WebSocket
            assert isinstance(protocol, asyncio.Protocol)
            protocol.data_received(data)
            return
        if self.conn.their_state is h11.IDLE:
            self._arm()
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._disarm()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        self._pieces.finish(functools.partial(super().connection_lost, exc))

    def _read_on(self) -> None:
        if not self.flow.read_paused:
            self.transport.resume_reading()

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
    """uvicorn's WebSocket protocol with bounds. `guard_socket` sets them.

    Every handshake is answered, and pings are answered whether the answers are read or not.
    """

    handshake_timeout_s: float
    note_refusal: Callable[[int], None]  # called with the status of a handshake that failed

    _handshake_timer: asyncio.TimerHandle | None = None
    _poll_timer: asyncio.TimerHandle | None = None  # runs while the socket is open
    _lost: asyncio.Event
    _pieces: Pieces

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(transport)
        self._pieces = Pieces(self.loop, self._parse, self.transport.pause_reading, self._read_on)
        self._lost = asyncio.Event()
        self._handshake_timer = self.loop.call_later(self.handshake_timeout_s, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._handshake_timer is not None:
            self._handshake_timer.cancel()
        if self._poll_timer is not None:
            self._poll_timer.cancel()
        self._lost.set()
        self._pieces.finish(functools.partial(super().connection_lost, exc))

    def data_received(self, data: bytes) -> None:
        self._pieces.put(data)

    def _parse(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            self._refuse(self.conn.handshake_exc)

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if hasattr(self, "scope"):
            extensions: dict[str, object] = {**(self.scope["extensions"] or {}), LOST: self._lost}
            self.scope["extensions"] = extensions  # type: ignore[typeddict-item]
            self._poll_timer = self.loop.call_later(POLL_S, self._poll)
        if self.response.status_code != HTTPStatus.SWITCHING_PROTOCOLS:
            logger.debug("a handshake was refused: %d", self.response.status_code)
            self.note_refusal(self.response.status_code)

    def handle_ping(self) -> None:
        if self.transport.get_write_buffer_size() > MAX_UNREAD_BYTES:
            self.transport.abort()
            return
        super().handle_ping()

    def _refuse(self, error: Exception) -> None:
        """Answer a handshake whose head cannot be read, and close."""
        # a head with too much in it has an exception of its own in websockets
        is_invalid = isinstance(error, InvalidMessage)
        status = (
            HTTPStatus.BAD_REQUEST if is_invalid else HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
        )
        logger.debug("a handshake cannot be read: %s", type(error).__name__)
        self.handshake_initiated = self.handshake_complete = self.close_sent = True
        self.note_refusal(status)
        self.transport.write(_response(Refusal(status, "invalid_handshake", UNREADABLE_MESSAGE)))
        self.transport.close()

    def _read_on(self) -> None:
        if not self.read_paused:
            self.transport.resume_reading()

    def _poll(self) -> None:
        """Notice that the client is gone where nobody reads, because its session is busy."""
        if self.read_paused and self.handshake_complete and not self.transport.is_closing():
            if _is_reset(self.transport.get_extra_info("socket")):
                self.transport.abort()
                return
            if not self.close_sent and not self.transport.get_write_buffer_size():
                # a machine whose client has died answers it with a reset, which the next look finds
                self.conn.send_ping(b"")
                self.transport.write(b"".join(self.conn.data_to_send()))
        self._poll_timer = self.loop.call_later(POLL_S, self._poll)

    def _give_up(self) -> None:
        if not self.handshake_complete:
            self.transport.abort()


def guard_socket(
    handshake_timeout_s: float, note_refusal: Callable[[int], None]
) -> type[GuardedSocket]:
    """Make a protocol class with these bounds; uvicorn builds its protocols from a class."""
    return type(
        "GuardedSocket",
        (GuardedSocket,),
        {
            "handshake_timeout_s": handshake_timeout_s,
            "note_refusal": staticmethod(note_refusal),
        },
    )


def _is_reset(opened: socket.socket) -> bool:
    """Return whether the peer has reset the connection; what it sent is lost then, read or not."""
    if not hasattr(socket, "TCP_INFO"):  # Linux has it
        return False
    try:
        return opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == TCP_CLOSE
    except OSError:
        return False


def _response(refusal: Refusal) -> bytes:
    """Write a refusal as the whole of an HTTP answer."""
    body = json.dumps(refusal.body).encode()
    head = (
        f"HTTP/1.1 {int(refusal.status)} {refusal.status.phrase}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + body
