"""One client's socket: whole messages in, whole messages out, and a bound on each.

Every wire protocol over WebSocket reads and writes through this. Inward, the transport is read
only when `receive` is called, so a session that is slow to feed slows its client down; how long a
client may be silent, and how long it may stay, holds for every protocol. Outward, no more than the
transport's buffer (64 KiB) waits, and a client that leaves it full is dropped.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import json
import time
from collections.abc import AsyncIterator, Coroutine, Iterable
from dataclasses import dataclass

from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse
from starlette.websockets import WebSocket, WebSocketDisconnect

from streamer.access.refusal import Refusal
from streamer.config import ServerConfig
from streamer.transport.tcp_limits import LOST
from streamer.wire import MAX_TEXT_BYTES, ClientFault

MAX_ERRORS = 100  # messages that a client may get wrong before its session is closed
MAX_REASON_BYTES = 123  # of a close frame; a longer one cannot be sent (RFC 6455, section 5.5)


class Disconnected(Exception):
    """The client is gone. Nothing can be sent any more."""


class SlowReader(Exception):
    """The client did not read what it was sent, for longer than it may."""


class MessageTooBig(Exception):
    """A message is larger than the service takes; its text is fit for the client."""


class Overdue(ClientFault):
    """The client was silent for too long, or has stayed as long as it may."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one client may do."""

    max_message_bytes: int
    send_timeout_s: float  # to leave what it was sent unread
    idle_timeout_s: float  # to send nothing
    max_session_s: float  # to stay

    @classmethod
    def of(cls, config: ServerConfig) -> Limits:
        """Return the limits that the service sets."""
        return cls(
            config.max_message_bytes,
            config.send_timeout_s,
            config.idle_timeout_s,
            config.max_session_s,
        )


LOST_GRACE_S = 3.0  # for what a client sent before it went
MAX_UNBROKEN_S = 0.005  # of taking messages before other tasks have a turn


class Connection:
    """An accepted socket."""

    def __init__(self, websocket: WebSocket, limits: Limits) -> None:
        self._websocket = websocket
        self._limits = limits
        # monotonic; None once the client has sent all its audio and only waits for text
        self._expires_at: float | None = time.monotonic() + limits.max_session_s
        self._yields_at = 0.0  # monotonic; from when on other tasks are to have a turn
        self._sending = asyncio.Lock()
        self._is_closed = False

    async def receive(self) -> str | bytes:
        """Wait for the next message; a JSON object is text, whatever kind of message carries it.

        Raises:
            Disconnected: the client closed the socket, or it broke.
            MessageTooBig: the message is beyond the limit.
            Overdue: "idle" or "session_too_long".
        """
        limits, left_s = self._limits, None
        if self._expires_at is not None:
            left_s = min(limits.idle_timeout_s, self._expires_at - time.monotonic())
            if left_s <= 0:
                raise self._overdue()
        if time.monotonic() >= self._yields_at:
            await asyncio.sleep(0)  # messages that are there already come without a wait
            self._yields_at = time.monotonic() + MAX_UNBROKEN_S
        try:
            async with asyncio.timeout(left_s):
                message = await self._websocket.receive()
        except TimeoutError:
            raise self._overdue() from None
        if message["type"] == "websocket.disconnect":
            self._is_closed = True
            raise Disconnected
        text: str | None = message.get("text")
        data: bytes = message.get("bytes") or b""
        size = len(data) if text is None else len(text)
        if size > MAX_TEXT_BYTES:
            await asyncio.sleep(0)  # to bring it here took some milliseconds, and to read it will
        if size > limits.max_message_bytes:
            raise MessageTooBig(
                f"expected messages of at most {limits.max_message_bytes} bytes, got {size}"
            )
        return _unwrap(data) if text is None else text.removeprefix("\ufeff")

    async def wait_lost(self) -> None:
        """Wait until the client is gone, for a session that may be too busy to receive.

        What came before has some seconds to be received.

        Raises:
            Disconnected: it is.
        """
        lost = self._websocket.scope.get("extensions", {}).get(LOST)
        if not isinstance(lost, asyncio.Event):
            await asyncio.Event().wait()  # another server, which does not say
        await lost.wait()
        await asyncio.sleep(LOST_GRACE_S)
        raise Disconnected

    def lift_limits(self) -> None:
        """Let the client be silent and stay: no more audio is taken, and its text is on the way."""
        self._expires_at = None

    def _overdue(self) -> Overdue:
        limits = self._limits
        assert self._expires_at is not None, "the limits are not lifted"
        if time.monotonic() < self._expires_at:
            return Overdue("idle", f"expected a message within {limits.idle_timeout_s:g} s")
        return Overdue(
            "session_too_long", f"expected a session of at most {limits.max_session_s:g} s"
        )

    async def send(self, text: str) -> None:
        """Send a text message; calls are written in the order in which they were made.

        Raises:
            Disconnected: the client is gone.
            SlowReader: it has not read for the time it has.
        """
        try:
            async with asyncio.timeout(self._limits.send_timeout_s), self._sending:
                if self._is_closed:
                    raise Disconnected
                await self._websocket.send_text(text)
        except TimeoutError:
            raise SlowReader from None
        except (WebSocketDisconnect, RuntimeError):
            # starlette raises RuntimeError for a send after the close
            self._is_closed = True
            raise Disconnected from None

    async def close(self, code: int, reason: str = "") -> None:
        """Send what waits, then the close; do nothing where the client is gone already.

        A reason that is longer than MAX_REASON_BYTES is cut.
        """
        if self._is_closed:
            return
        self._is_closed = True
        reason = reason.encode()[:MAX_REASON_BYTES].decode(errors="ignore")
        with contextlib.suppress(TimeoutError, WebSocketDisconnect, RuntimeError):
            async with asyncio.timeout(self._limits.send_timeout_s):
                await self._websocket.close(code, reason)


def _unwrap(data: bytes) -> str | bytes:
    """Return a control message that came as a binary one as text; anything else as it is.

    Samples that read as a JSON object with a name in it do not occur.
    """
    body = data.removeprefix(codecs.BOM_UTF8)
    if not body[:1] == b"{" or len(body) > MAX_TEXT_BYTES or body.rstrip()[-1:] != b"}":
        return data
    try:
        text = body.decode()
        values = json.loads(text)
    except (ValueError, RecursionError):
        return data
    return text if values else data


async def accept(
    websocket: WebSocket,
    limits: Limits,
    *,
    subprotocol: str | None = None,
    headers: Iterable[tuple[bytes, bytes]] = (),
) -> Connection:
    """Complete the handshake, and hold the socket to its limits."""
    await websocket.accept(subprotocol=subprotocol, headers=headers)
    return Connection(websocket, limits)


@contextlib.asynccontextmanager
async def starting_within(
    timeout_s: float, expected: str, since: float | None = None
) -> AsyncIterator[None]:
    """Bound the time until a client says what it wants.

    Args:
        since: time.monotonic() from which the time counts; None: now.

    Raises:
        ClientFault: "start_timeout".
    """
    try:
        passed_s = 0.0 if since is None else time.monotonic() - since
        async with asyncio.timeout(timeout_s - passed_s):
            yield
    except TimeoutError:
        message = f"expected {expected} within {timeout_s:g} s, got nothing"
        raise ClientFault("start_timeout", message) from None


def read_query(connection: HTTPConnection) -> dict[str, list[str]]:
    """Return the query's parameters, each with all its values; the gate has taken out the keys."""
    query = connection.query_params
    return {name: query.getlist(name) for name in query}


async def refuse(websocket: WebSocket, refusal: Refusal) -> None:
    """Answer the handshake with an HTTP error instead of a socket."""
    await websocket.send_denial_response(
        JSONResponse(refusal.body, status_code=refusal.status, headers=refusal.headers)
    )


async def race(*coroutines: Coroutine[object, object, None]) -> None:
    """Run all until the first of them ends, then cancel the rest; raise what ended it."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        ended = [task for task in tasks if task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in ended:
        task.result()
