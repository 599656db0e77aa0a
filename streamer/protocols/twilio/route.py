"""`/v1/twilio`: a telephone call comes in; `/v1/calls/{callSid}`: its text goes out.

docs/twilio.md says what of Twilio Media Streams is served.
"""

from __future__ import annotations

import functools

from starlette.routing import BaseRoute, WebSocketRoute
from starlette.websockets import WebSocket

from streamer.protocols.twilio.call import CallLogs
from streamer.protocols.twilio.reader import CallReader
from streamer.protocols.twilio.session import CallStream
from streamer.service import Service
from streamer.transport.connection import Limits, accept, refuse
from streamer.transport.edge import serve


def routes(service: Service) -> list[BaseRoute]:
    """Serve calls, and the readers that follow them."""
    config = service.config
    calls = CallLogs(config.call_grace_s, config.max_calls)
    return [
        WebSocketRoute("/v1/twilio", functools.partial(_serve_call, service, calls)),
        WebSocketRoute("/v1/calls/{call}", functools.partial(_serve_reader, service, calls)),
    ]


async def _serve_call(service: Service, calls: CallLogs, websocket: WebSocket) -> None:
    if (refusal := service.refusal()) is not None:
        await refuse(websocket, refusal)
        return
    connection = await accept(websocket, Limits.of(service.config))
    await serve(CallStream(service, calls, connection), connection.close)


async def _serve_reader(service: Service, calls: CallLogs, websocket: WebSocket) -> None:
    query = websocket.query_params
    after = query.get("after", "0")
    connection = await accept(websocket, Limits.of(service.config))
    reader = CallReader(
        calls,
        websocket.path_params["call"],
        connection,
        after=int(after) if after.isascii() and after.isdigit() and len(after) < 18 else 0,
        with_partials=query.get("partials", "true") != "false",
    )
    await serve(reader, connection.close)
