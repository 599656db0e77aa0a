"""An asyncio client of `/v1/stream`.

async with connect("ws://localhost:8000", Start(language="en")) as stream:
    await stream.send(pcm)       # again and again, from one task
    await stream.end()
    async for message in stream:  # in another task, until `Done`
        ...
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from urllib.parse import urlsplit, urlunsplit

from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as connect_socket
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI

from streamer import protocol
from streamer.protocol import Done, Error, ServerMessage, Start

DEFAULT_URL = "ws://localhost:8000"
PING_INTERVAL_S = 20.0
OPEN_TIMEOUT_S = 10.0


class ClientError(Exception):
    """What keeps a client from its captions; the message is fit to show."""


class NoServer(ClientError):
    """Nobody answers at the address."""


class Refused(ClientError):
    """The server turned the client away.

    Attributes:
        retry_after_s: when to come back, or None where that would not help.
    """

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Stream:
    """An open session. Send from one task and iterate in another, or iterate after `end`."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket

    async def send(self, audio: bytes) -> None:
        """Send sound in the encoding of the start; waits where the server is behind."""
        await self._send(audio)

    async def update(
        self,
        *,
        language: str | None = None,
        prompt: str | None = None,
        hotwords: list[str] | None = None,
    ) -> None:
        """Change what is given, from the next segment on."""
        await self._send(protocol.encode(protocol.Update(language, prompt, hotwords)))

    async def finalize(self) -> None:
        """Close the open segment now."""
        await self._send(protocol.encode(protocol.Finalize()))

    async def end(self) -> None:
        """Say that no more sound comes. The rest of the text, then `Done`, follow."""
        await self._send(protocol.encode(protocol.End()))

    def __aiter__(self) -> AsyncIterator[ServerMessage]:
        return self._messages()

    async def _messages(self) -> AsyncIterator[ServerMessage]:
        """Yield what the server says, `Done` last.

        Raises:
            Refused: the server said that the session cannot go on.
            ClientError: the connection broke.
        """
        try:
            async for text in self._socket:
                if isinstance(text, bytes):
                    continue
                message = protocol.parse_server(text)
                if message is None:
                    continue
                if isinstance(message, Error) and message.fatal:
                    raise Refused(message.message, message.retry_after_s)
                yield message
                if isinstance(message, Done):
                    return
        except ConnectionClosed as error:
            raise ClientError(f"the connection broke: {_reason(error)}") from None
        raise ClientError("the server closed the connection before it was done")

    async def _send(self, data: bytes | str) -> None:
        # a server that closes says why in a message; `_messages` raises it
        with contextlib.suppress(ConnectionClosed):
            await self._socket.send(data)


@contextlib.asynccontextmanager
async def connect(
    url: str = DEFAULT_URL, start: Start | None = None, *, key: str | None = None
) -> AsyncIterator[Stream]:
    """Open a session; leaving the context closes it.

    Args:
        url: of the server: ws, wss, http or https; the path may be left out.
        start: the settings; without it, 16 kHz mono s16le and detected language.
        key: where the server asks for one.

    Raises:
        NoServer: nobody answers.
        Refused: no room, no valid key, or no such path.
    """
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        socket = await connect_socket(
            stream_url(url),
            additional_headers=headers,
            compression=None,
            open_timeout=OPEN_TIMEOUT_S,
            ping_interval=PING_INTERVAL_S,
            # pongs wait behind the sound that the server has not read yet
            ping_timeout=None,
            max_size=2**24,
        )
    except InvalidStatus as error:
        raise _refused(error) from None
    except (InvalidHandshake, InvalidURI, EOFError) as error:
        raise NoServer(f"no Wordwire server at {url}: {error}") from None
    except (OSError, TimeoutError):
        raise NoServer(f"no server answers at {url}") from None
    async with socket:
        await socket.send(protocol.encode_start(start or Start()))
        yield Stream(socket)


def stream_url(url: str) -> str:
    """Complete an address to that of the socket: ws or wss, and the path of `/v1/stream`."""
    parts = urlsplit(url if "//" in url else f"//{url}", scheme="ws")
    scheme = {"http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme)
    path = parts.path.rstrip("/")
    if not path.endswith(protocol.PATH):
        path += protocol.PATH
    return urlunsplit((scheme, parts.netloc, path, parts.query, ""))


def _refused(error: InvalidStatus) -> Refused:
    response = error.response
    message = f"the server refused with HTTP {response.status_code}"
    with contextlib.suppress(ValueError, KeyError, TypeError):
        message += ": " + json.loads(response.body or b"")["error"]["message"]
    retry_after_s = None
    with contextlib.suppress(KeyError, ValueError):
        retry_after_s = float(response.headers["Retry-After"])
    return Refused(message, retry_after_s)


def _reason(error: ConnectionClosed) -> str:
    if error.rcvd is None:
        return "no closing message"
    return f"{error.rcvd.code} {error.rcvd.reason}".strip()
