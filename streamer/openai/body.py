"""JSON bodies of small requests."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

from starlette.requests import Request

from streamer.openai.error import ApiError

MAX_BODY_BYTES = 1 << 20


async def read_object(request: Request) -> dict[str, Any]:
    """Read a JSON object; no body is an empty one.

    Raises:
        ApiError: it is none, or too large.
    """
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise ApiError(
                f"expected a body of at most {MAX_BODY_BYTES} bytes",
                code="body_too_large",
                status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            )
    return parse_object(bytes(body)) if body else {}


def parse_object(text: str | bytes) -> dict[str, Any]:
    """Parse a JSON object, strictly.

    Raises:
        ApiError: invalid_json.
    """
    try:
        values = json.loads(text, parse_constant=_refuse_constant)
    except ValueError as error:  # of UTF-8, too
        raise ApiError(f"expected a JSON object, got {error}", code="invalid_json") from None
    except RecursionError:
        raise ApiError("expected a JSON object, got deep nesting", code="invalid_json") from None
    if not isinstance(values, dict):
        raise ApiError("expected a JSON object", code="invalid_json")
    return values


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name}, which is no JSON")
