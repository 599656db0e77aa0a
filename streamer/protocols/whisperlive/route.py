"""WhisperLive's protocol, where its clients look for it (`/`) and at `/v1/whisperlive`.

docs/whisperlive.md says what of it is served.
"""

from __future__ import annotations

import functools

from starlette.routing import BaseRoute, WebSocketRoute
from starlette.websockets import WebSocket

from streamer.protocols.whisperlive.session import WhisperLiveSession
from streamer.service import Service
from streamer.transport.connection import Limits, accept
from streamer.transport.edge import serve

PATHS = ("/v1/whisperlive", "/")


def routes(service: Service) -> list[BaseRoute]:
    """Serve WhisperLive's clients; the page keeps `/` over HTTP."""
    endpoint = functools.partial(_serve, service)
    return [WebSocketRoute(path, endpoint) for path in PATHS]


async def _serve(service: Service, websocket: WebSocket) -> None:
    connection = await accept(websocket, Limits.of(service.config))
    await serve(WhisperLiveSession(service, connection), connection.close)
