"""What every protocol needs on its wire: close codes, a client's fault, times and JSON objects.

No protocol is known here, so that none has to import another to say that a client was wrong.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from typing import Any, NoReturn

from engine.api import SAMPLE_RATE
from streamer import schema

# what each fault does to a WebSocket (RFC 6455, section 7.4)
CLOSE_NORMAL = 1000
CLOSE_PROTOCOL_ERROR = 1008
CLOSE_TOO_BIG = 1009
CLOSE_INTERNAL = 1011
CLOSE_RESTART = 1012
CLOSE_BUSY = 1013

MAX_DEPTH = 64  # levels of JSON; messages need six, and what walks them recurses
# the parser joins whole pairs; what is left of them is no character
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
MAX_TEXT_BYTES = 64 * 1024  # of one control message; a prompt and hotwords fit many times
# What is longer holds audio in base64, which has no commas: one long string and a few fields. A
# list of 18 MB held the event loop for 5.7 s.
MAX_COMMAS = 10_000


class ClientFault(Exception):
    """What a client did wrong: what was expected and what was found.

    Attributes:
        code: a stable name for programs, such as "invalid_json".
        message: names the field, what was expected and what was found; fit for the client.
        field: the message's field that is wrong, or None where it is not about one.
        is_fatal: the session cannot go on; the socket closes with 1008.
    """

    def __init__(
        self, code: str, message: str, *, field: str | None = None, is_fatal: bool = False
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.field = field
        self.is_fatal = is_fatal


def seconds(samples: int) -> float:
    """Convert a position or a duration to seconds, rounded to a millisecond."""
    return round(samples / SAMPLE_RATE, 3)


def parse_object(text: str | bytes, max_length: int | None = MAX_TEXT_BYTES) -> dict[str, Any]:
    """Read one JSON object, strictly: no NaN, no number beyond a double, no duplicate names.

    What it returns can be written again: it is at most MAX_DEPTH deep, and halves of surrogate
    pairs, which no UTF-8 can hold, are U+FFFD.

    Args:
        max_length: characters that it may have; None where another limit holds.

    Raises:
        ClientFault: "too_long" or "invalid_json".
    """
    if max_length is not None and len(text) > max_length:
        raise ClientFault("too_long", f"expected at most {max_length} characters, got {len(text)}")
    if len(text) > MAX_TEXT_BYTES:
        num_commas = text.count(",") if isinstance(text, str) else text.count(b",")
        if num_commas > MAX_COMMAS:
            raise ClientFault(
                "invalid_json",
                f"expected a JSON object of one long string, got {num_commas + 1} values",
            )
    try:
        value = json.loads(
            text,
            object_pairs_hook=_unique,
            parse_constant=_refuse_constant,
            parse_float=_finite,
        )
        value = _writable(value, MAX_DEPTH)
    except ValueError as error:  # of UTF-8, too
        raise ClientFault("invalid_json", f"expected a JSON object, got {error}") from None
    except RecursionError:
        raise ClientFault("invalid_json", "expected a JSON object, got deep nesting") from None
    if not isinstance(value, dict):
        raise ClientFault("invalid_json", f"expected a JSON object, got {schema.quote(value)}")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) != len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the name {schema.quote(twice)} twice")
    return record


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name}, which is not JSON")


def _finite(text: str) -> float:
    if math.isinf(value := float(text)):
        raise ValueError(f"the number {text:.40}, which is too large")
    return value


def _writable(value: Any, depth: int) -> Any:
    """Return a parsed value with whole characters only, of at most that many levels."""
    if isinstance(value, str):
        return value if value.isascii() else _LONE_SURROGATE.sub("\ufffd", value)
    if isinstance(value, dict | list) and not depth:
        raise ValueError(f"nesting of more than {MAX_DEPTH} levels")
    if isinstance(value, dict):
        return {_writable(name, 1): _writable(each, depth - 1) for name, each in value.items()}
    if isinstance(value, list):
        return [_writable(each, depth - 1) for each in value]
    return value
