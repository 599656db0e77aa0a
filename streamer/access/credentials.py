"""Where a credential may stand in a request, and how it is taken out of it.

Clients of many kinds come with a key where their vendor's own service wants it; once taken out, no
protocol, log or error can repeat it.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import unquote_plus

QUERY_NAMES = frozenset({"key", "token", "api_key"})
COOKIE = "wordwire"
# a subprotocol of this name stands before the one that is the key (Deepgram's browser clients)
KEY_SCHEMES = frozenset({"token", "bearer"})
# a key may follow this path: Twilio sends neither headers of one's own nor a query; it is taken out
# of a path that is written wrong, too
_KEY_PATH = re.compile(r"(.*/twilio)/+(.+)", re.IGNORECASE | re.DOTALL)
KEY_PREFIX = "openai-insecure-api-key."  # a subprotocol that holds the key (OpenAI's)


@dataclass(slots=True)
class Credentials:
    """What a request showed, and the subprotocols left once the key is taken out of them."""

    candidates: list[str]
    subprotocols: list[str]
    cookie: str | None = None
    from_browser_url: bool = False  # stood in the address or in a browser's password prompt


def read_headers(headers: Iterable[tuple[bytes, bytes]]) -> Credentials:
    """Take credentials from the headers `authorization`, `x-api-key` and `cookie`."""
    found = Credentials([], [])
    for name, value in headers:
        text = value.decode("latin-1").strip()
        if name == b"x-api-key":
            found.candidates.append(text)
        elif name == b"authorization":
            scheme, _, rest = text.partition(" ")
            if scheme.lower() in ("bearer", "token"):
                found.candidates.append(rest.strip())
            elif scheme.lower() == "basic":
                found.from_browser_url = True
                found.candidates += _basic_password(rest)
        elif name == b"cookie":
            for part in text.split(";"):
                cookie, _, content = part.strip().partition("=")
                if cookie == COOKIE:
                    found.cookie = content
    return found


def _basic_password(encoded: str) -> list[str]:
    try:
        user, _, password = base64.b64decode(encoded.strip()).decode().partition(":")
    except ValueError:
        return []
    return [password or user]


def split_subprotocols(offered: Iterable[str], found: Credentials) -> None:
    """Take keys out of the subprotocols that a client offers; the rest stays for the protocol."""
    is_key_next = False
    for name in offered:
        if is_key_next:
            found.candidates.append(name)
            is_key_next = False
        elif name.startswith(KEY_PREFIX):
            found.candidates.append(name.removeprefix(KEY_PREFIX))
        else:
            found.subprotocols.append(name)
            is_key_next = name.lower() in KEY_SCHEMES


def split_query(query: str, found: Credentials) -> str:
    """Take keys out of a query string; returns what is left of it, as it was written."""
    kept = []
    for part in query.split("&"):
        name, _, value = part.partition("=")
        if unquote_plus(name) in QUERY_NAMES:
            found.candidates.append(unquote_plus(value))
            found.from_browser_url = True
        elif part:
            kept.append(part)
    return "&".join(kept)


def split_path(path: str, found: Credentials) -> str:
    """Take a key out of a path; returns what is left of it."""
    match = _KEY_PATH.fullmatch(path)
    if match is None:
        return path
    found.candidates.append(match[2])
    return match[1]
