"""What Deepgram's two APIs share: the address, the check of the language, and errors."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from http import HTTPStatus

from starlette.responses import JSONResponse

from engine.api import ModelInfo
from streamer.access.refusal import Refusal
from streamer.protocols.deepgram.options import ListenOptions
from streamer.wire import ClientFault

PATH = "/v1/listen"


def check_language(options: ListenOptions, info: ModelInfo) -> None:
    """Refuse a language that the model does not know, before any audio is sent.

    Raises:
        ClientFault: names the language.
    """
    language = options.settings.language
    if language is not None and language not in info.languages:
        raise ClientFault(
            "unsupported_language",
            f"language: expected one that {info.name} knows, got {language!r}",
            field="language",
        )


def error_response(
    request_id: str,
    status: HTTPStatus,
    code: str,
    message: str,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """Write an error as Deepgram does, for a request or for a handshake."""
    body = {"err_code": code.upper(), "err_msg": message, "request_id": request_id}
    return JSONResponse(
        body,
        status_code=status,
        headers={
            **(headers or {}),
            "dg-request-id": request_id,
            "dg-error": message.encode("ascii", "replace").decode(),
        },
    )


def timestamp() -> str:
    """Return the time now as Deepgram writes it."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


def refused(request_id: str, refusal: Refusal) -> JSONResponse:
    """Write why the service takes nothing now."""
    return error_response(
        request_id, refusal.status, refusal.code, refusal.message, refusal.headers
    )
