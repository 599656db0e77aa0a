"""`/v1/listen` over WebSocket: Deepgram's live API. docs/deepgram.md says what of it is served."""

from __future__ import annotations

import dataclasses
import functools
import uuid
from http import HTTPStatus

from starlette.routing import BaseRoute, WebSocketRoute
from starlette.websockets import WebSocket

from streamer.protocols.deepgram.audio_input import DeepgramInput
from streamer.protocols.deepgram.http import PATH, check_language, error_response, refused
from streamer.protocols.deepgram.options import parse_options
from streamer.protocols.deepgram.session import ListenSession
from streamer.service import Service
from streamer.transport.connection import Limits, accept, read_query
from streamer.transport.edge import serve
from streamer.wire import ClientFault

SILENCE_LIMIT_S = 10.0  # without audio or KeepAlive, as at Deepgram


def routes(service: Service) -> list[BaseRoute]:
    """Serve Deepgram's live API."""
    return [WebSocketRoute(PATH, functools.partial(_serve, service))]


async def _serve(service: Service, websocket: WebSocket) -> None:
    request_id = str(uuid.uuid4())
    refusal = service.refusal()
    if refusal is not None:
        await websocket.send_denial_response(refused(request_id, refusal))
        return
    info = service.info
    assert info is not None, "a service without a model refuses"
    try:
        options = parse_options(read_query(websocket))
        check_language(options, info)
        audio = DeepgramInput(options)
    except ClientFault as error:
        await websocket.send_denial_response(
            error_response(request_id, HTTPStatus.BAD_REQUEST, error.code, error.message)
        )
        return
    limits = dataclasses.replace(Limits.of(service.config), idle_timeout_s=SILENCE_LIMIT_S)
    named = [(b"dg-request-id", request_id.encode())]
    connection = await accept(websocket, limits, headers=named)
    session = ListenSession(service, connection, request_id, options, audio, info)
    await serve(session, connection.close)
