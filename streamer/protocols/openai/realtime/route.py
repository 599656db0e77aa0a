"""`/v1/realtime`: OpenAI's Realtime API, for transcription. docs/openai.md says what is served.

vLLM has another protocol at the same address (docs/vllm-realtime.md). Its clients show themselves
by their first message.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from http import HTTPStatus

from starlette.routing import BaseRoute, WebSocketRoute
from starlette.websockets import WebSocket

from streamer.access.refusal import Refusal
from streamer.protocols.model_names import ALIASES
from streamer.protocols.openai.realtime import secret_route
from streamer.protocols.openai.realtime.options import RealtimeConfig
from streamer.protocols.openai.realtime.secrets import SecretSessions
from streamer.protocols.openai.realtime.session import RealtimeSession
from streamer.protocols.vllm.session import VllmSession
from streamer.service import Service
from streamer.transport.access_gate import SHOWN_DIGESTS
from streamer.transport.connection import Limits, accept, refuse
from streamer.transport.edge import serve

PATH = "/v1/realtime"
MAX_AUDIO_BYTES = 15 << 20  # of one append, as at OpenAI
MAX_MESSAGE_BYTES = MAX_AUDIO_BYTES * 4 // 3 + 4096  # the same in base64
SUBPROTOCOL = "realtime"


def routes(service: Service) -> list[BaseRoute]:
    """Serve Realtime's transcription sessions, and the secrets that browsers open them with."""
    sessions = SecretSessions()
    return [
        WebSocketRoute(PATH, functools.partial(_serve, service, sessions)),
        *secret_route.routes(service, sessions),
    ]


async def _serve(service: Service, sessions: SecretSessions, websocket: WebSocket) -> None:
    intent = websocket.query_params.get("intent", "transcription")
    refusal = service.refusal()
    if refusal is None and intent != "transcription":
        refusal = Refusal(HTTPStatus.BAD_REQUEST, "invalid_intent", "expected intent=transcription")
    if refusal is not None:
        await refuse(websocket, refusal)
        return
    info = service.info
    assert info is not None, "a service without a model refuses"
    offered = websocket.scope.get("subprotocols", [])
    limits = dataclasses.replace(Limits.of(service.config), max_message_bytes=MAX_MESSAGE_BYTES)
    connection = await accept(
        websocket, limits, subprotocol=SUBPROTOCOL if SUBPROTOCOL in offered else None
    )
    shown = websocket.scope.get(SHOWN_DIGESTS, frozenset())
    config = sessions.find(shown, time.time()) or RealtimeConfig(info)
    model = websocket.query_params.get("model")
    if model == info.name or model in ALIASES:
        # models of conversations stand in addresses too; what they are asked for is not here
        config = config.update({"audio": {"input": {"transcription": {"model": model}}}})
    is_old = "realtime=v1" in websocket.headers.get("openai-beta", "")
    session = RealtimeSession(service, connection, config, is_old=is_old)
    await serve(session, connection.close)
    if session.foreign is not None:
        await serve(VllmSession(service, connection, info, session.foreign), connection.close)
