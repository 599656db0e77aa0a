"""`/v1/stream`: audio in, captions out, in the protocol that docs/protocol.md specifies."""

from __future__ import annotations

import functools
import json

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket

from streamer import protocol
from streamer.protocols.native.parking import Parking
from streamer.protocols.native.resume import UNKNOWN_SESSION, Client, find_session
from streamer.service import Service
from streamer.transport.connection import (
    Limits,
    accept,
    read_query,
    refuse,
)
from streamer.transport.edge import serve


def routes(service: Service) -> list[BaseRoute]:
    """Serve `/v1/stream`, and what sessions said whose clients did not come back."""
    parking = Parking(service)
    carried: dict[str, Client] = {}  # by session, the socket that carries it
    return [
        WebSocketRoute(protocol.PATH, functools.partial(_serve, service, parking, carried)),
        Route("/v1/sessions/{id}", functools.partial(_show, parking)),
    ]


async def _serve(
    service: Service, parking: Parking, carried: dict[str, Client], websocket: WebSocket
) -> None:
    refusal = service.refusal()
    # a client that is here takes precedence over one that may come back; a resumed session has its
    # place already
    if refusal is not None and not (refusal.code == "busy" and parking.num_waiting):
        await refuse(websocket, refusal)
        return
    connection = await accept(websocket, Limits.of(service.config))
    client = Client(service, parking, carried, connection, read_query(websocket))
    try:
        await serve(client, connection.close)
    finally:
        await client.leave()


async def _show(parking: Parking, request: Request) -> JSONResponse:
    """Return the messages of a session whose client is away, from a number on."""
    session = find_session(parking, request.path_params["id"])
    if session is None:
        error = {"code": UNKNOWN_SESSION.code, "message": UNKNOWN_SESSION.message}
        return JSONResponse({"error": error}, status_code=404)
    try:
        after = int(request.query_params["seq"])
    except (KeyError, ValueError):
        after = -1
    messages = [json.loads(entry.text) for entry in session.journal.after(after)]
    return JSONResponse({"done": session.is_over, "messages": messages})
