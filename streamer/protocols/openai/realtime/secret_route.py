"""Short-lived secrets for browsers: `/v1/realtime/client_secrets`, and the Beta's older way."""

from __future__ import annotations

import functools
import secrets
import time
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Route

from streamer.access.keys import MAX_LIFETIME_S, MIN_LIFETIME_S
from streamer.protocols.openai.body import read_object
from streamer.protocols.openai.error import ApiError, served_model
from streamer.protocols.openai.realtime.options import RealtimeConfig
from streamer.protocols.openai.realtime.secrets import SecretSessions
from streamer.service import Service
from streamer.transport.access_gate import SHOWN_DIGESTS

DEFAULT_LIFETIME_S = 600
BETA_LIFETIME_S = 60  # the Beta's


def routes(service: Service, sessions: SecretSessions) -> list[BaseRoute]:
    """Serve both ways to get a secret; `sessions` learns what each is for."""
    return [
        Route(
            "/v1/realtime/client_secrets",
            functools.partial(_create, service, sessions),
            methods=["POST"],
        ),
        Route(
            "/v1/realtime/transcription_sessions",
            functools.partial(_create_old, service, sessions),
            methods=["POST"],
        ),
    ]


async def _create(service: Service, sessions: SecretSessions, request: Request) -> JSONResponse:
    try:
        _check_caller(sessions, request)
        values = await read_object(request)
        config = _config(service, values.get("session"))
        lifetime_s = read_lifetime(values.get("expires_after"), DEFAULT_LIFETIME_S)
    except ApiError as error:
        return error.response()
    token = service.access.mint_token(lifetime_s, time.time())
    sessions.bind(token.value, config, token.expires_at)
    return JSONResponse(
        {
            "value": token.value,
            "expires_at": token.expires_at,
            "session": config.describe("sess_" + secrets.token_hex(10)),
        }
    )


async def _create_old(service: Service, sessions: SecretSessions, request: Request) -> JSONResponse:
    try:
        _check_caller(sessions, request)
        config = _config(service, await read_object(request))
    except ApiError as error:
        return error.response()
    token = service.access.mint_token(BETA_LIFETIME_S, time.time())
    sessions.bind(token.value, config, token.expires_at)
    return JSONResponse(
        {
            **config.describe_old("sess_" + secrets.token_hex(10)),
            "client_secret": {"value": token.value, "expires_at": token.expires_at},
        }
    )


def _check_caller(sessions: SecretSessions, request: Request) -> None:
    """Refuse a secret as the credential: else a page could renew its own for ever."""
    if sessions.find(request.scope.get(SHOWN_DIGESTS, frozenset()), time.time()) is not None:
        raise ApiError(
            "expected an API key, got a client secret",
            code="insufficient_permissions",
            status=HTTPStatus.FORBIDDEN,
        )


def _config(service: Service, session: object) -> RealtimeConfig:
    info = served_model(service)
    if session is not None and not isinstance(session, dict):
        raise ApiError("session: expected an object", code="invalid_value", param="session")
    config = RealtimeConfig(info)
    return config.update(session) if session else config


def read_lifetime(value: Any, default_s: int) -> int:
    """Read `expires_after`: so many seconds after its creation.

    Raises:
        ApiError: names the field.
    """
    if value is None:
        return default_s
    seconds = value.get("seconds", default_s) if isinstance(value, dict) else None
    if type(seconds) is not int or not MIN_LIFETIME_S <= seconds <= MAX_LIFETIME_S:
        raise ApiError(
            f"expires_after: expected seconds from {MIN_LIFETIME_S} to {MAX_LIFETIME_S} "
            "after created_at",
            code="invalid_value",
            param="expires_after.seconds",
        )
    if value.get("anchor", "created_at") != "created_at":
        raise ApiError(
            "expires_after: expected the anchor created_at",
            code="invalid_value",
            param="expires_after.anchor",
        )
    return seconds
