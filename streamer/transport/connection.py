"""One client's socket: whole messages in, whole messages out, and a bound on each.

Every wire protocol over WebSocket reads and writes through this. Inward, the transport is read
only when `receive` is called, so a session that is slow to feed slows its client down. Outward, no
more than the transport's buffer (64 KiB) waits, and a client that leaves it full is dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Coroutine, Iterable

from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse
from starlette.websockets import WebSocket, WebSocketDisconnect

from streamer.access.refusal import Refusal
from streamer.config import ServerConfig

MAX_ERRORS = 100  # messages that a client may get wrong before its session is closed
MAX_REASON_BYTES = 123  # of a close frame; a longer one cannot be sent (RFC 6455, section 5.5)
# one half of a surrogate pair, as an escape of JSON: no text at all, and nothing that can be sent
# back, or that a tokenizer takes
_LONE_SURROGATE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)


class Disconnected(Exception):
    """The client is gone. Nothing can be sent any more."""


class SlowReader(Exception):
    """The client did not read what it was sent, for longer than it may."""


class MessageTooBig(Exception):
    """A message is larger than the service takes; its text is fit for the client."""


class Connection:
    """An accepted socket."""

    def __init__(
        self, websocket: WebSocket, *, max_message_bytes: int, send_timeout_s: float
    ) -> None:
        self._websocket = websocket
        self._max_message_bytes = max_message_bytes
        self._send_timeout_s = send_timeout_s
        self._sending = asyncio.Lock()
        self._is_closed = False

    async def receive(self) -> str | bytes:
        """Wait for the next message; in text, halves of surrogate pairs become U+FFFD.

        Raises:
            Disconnected: the client closed the socket, or it broke.
            MessageTooBig: the message is beyond the limit.
        """
        message = await self._websocket.receive()
        if message["type"] == "websocket.disconnect":
            self._is_closed = True
            raise Disconnected
        text: str | None = message.get("text")
        data: bytes = message.get("bytes") or b""
        size = len(data) if text is None else len(text)
        if size > self._max_message_bytes:
            raise MessageTooBig(
                f"expected messages of at most {self._max_message_bytes} bytes, got {size}"
            )
        return data if text is None else _LONE_SURROGATE.sub(r"\\ufffd", text)

    async def send(self, text: str) -> None:
        """Send a text message; calls are written in the order in which they were made.

        Raises:
            Disconnected: the client is gone.
            SlowReader: it has not read for the time it has.
        """
        try:
            async with asyncio.timeout(self._send_timeout_s), self._sending:
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
            async with asyncio.timeout(self._send_timeout_s):
                await self._websocket.close(code, reason)


async def accept(
    websocket: WebSocket, config: ServerConfig, headers: Iterable[tuple[bytes, bytes]] = ()
) -> Connection:
    """Complete the handshake, and hold the socket to the limits of the service."""
    await websocket.accept(headers=headers)
    return Connection(
        websocket,
        max_message_bytes=config.max_message_bytes,
        send_timeout_s=config.send_timeout_s,
    )


def read_query(connection: HTTPConnection) -> dict[str, list[str]]:
    """Give the query's parameters, each with all its values; the gate has taken out the keys."""
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
