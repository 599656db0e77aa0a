"""Opening a client's socket, and the errors that explain why it cannot be opened."""

from __future__ import annotations

import contextlib
import json
from urllib.parse import urlsplit, urlunsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, InvalidStatus, InvalidURI

from streamer import protocol

DEFAULT_URL = "ws://localhost:8000"
PING_INTERVAL_S = 20.0  # proxies drop connections that are silent for 30 to 60 s
OPEN_TIMEOUT_S = 10.0
MAX_MESSAGE_BYTES = 2**24  # a final with word times is far smaller


class ClientError(Exception):
    """A session could not be opened or kept; the message can be shown."""


class NoServer(ClientError):
    """No server answers at the address."""


class Refused(ClientError):
    """The server refused the client.

    Attributes:
        code: the server's stable name for the reason, or "".
        retry_after_s: when to try again, or None if that would not help.
    """

    def __init__(self, message: str, code: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.retry_after_s = retry_after_s


async def open_socket(url: str, key: str | None, path: str = protocol.PATH) -> ClientConnection:
    """Connect to a server.

    Args:
        url: of the server, see `socket_url`.
        key: if the server asks for one.
        path: of the route.

    Raises:
        NoServer: no server answers.
        Refused: no room, no valid key, or no such path.
    """
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        return await connect(
            socket_url(url, path),
            additional_headers=headers,
            compression=None,
            open_timeout=OPEN_TIMEOUT_S,
            ping_interval=PING_INTERVAL_S,
            # pongs wait behind the audio that the server has not read yet
            ping_timeout=None,
            max_size=MAX_MESSAGE_BYTES,
        )
    except InvalidStatus as error:
        raise _refused(error) from None
    except (InvalidURI, ValueError):  # a port that is not a number
        raise NoServer(f"expected an address such as {DEFAULT_URL}, got {url}") from None
    except (InvalidHandshake, EOFError):
        raise NoServer(f"the server at {url} is not a Wordwire server") from None
    except (OSError, TimeoutError):
        raise NoServer(f"no server answers at {url}") from None


def socket_url(url: str, path: str = protocol.PATH) -> str:
    """Turn an address into that of a socket: ws or wss, with the path of its route."""
    parts = urlsplit(url if "//" in url else f"//{url}", scheme="ws")
    scheme = {"http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme)
    folder = parts.path.rstrip("/").removesuffix(path)
    return urlunsplit((scheme, parts.netloc, folder + path, parts.query, ""))


def _refused(error: InvalidStatus) -> Refused:
    response = error.response
    message, code = f"the server refused with HTTP {response.status_code}", ""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        details = json.loads(response.body or b"")["error"]
        message, code = f"{message}: {details['message']}", str(details["code"])
    retry_after_s = None
    with contextlib.suppress(KeyError, ValueError):
        retry_after_s = float(response.headers["Retry-After"])
    return Refused(message, code, retry_after_s)
