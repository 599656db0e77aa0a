"""What tests of `/v1/stream` send and read, over a real socket."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import websockets
from websockets.asyncio.client import ClientConnection

from streamer.config import ServerConfig
from tests.support.audio import babble, pcm16
from tests.support.running_service import Running

Message = dict[str, Any]

SENTENCE = pcm16(babble(2.0))
WORDS = "w0 w1 w2 w3"


def config_of(**changes: Any) -> ServerConfig:
    return ServerConfig(port=0, drain_timeout_s=2.0, **changes)


def connect(service: Running, query: str = "") -> Any:
    return websockets.connect(f"{service.ws}/v1/stream{query}", compression=None)


async def say(socket: ClientConnection, **message: object) -> None:
    await socket.send(json.dumps(message))


async def start(socket: ClientConnection, **settings: object) -> None:
    """Start a session that takes everything for speech: detection has tests of its own."""
    await say(socket, type="start", vad_threshold=0, **settings)


async def receive(socket: ClientConnection) -> Message:
    async with asyncio.timeout(30):
        message: Message = json.loads(await socket.recv())
    return message


async def receive_rest(socket: ClientConnection) -> list[Message]:
    """Read until the server closes."""
    messages = []
    async with asyncio.timeout(30):
        with contextlib.suppress(websockets.ConnectionClosed):
            while True:
                messages.append(json.loads(await socket.recv()))
    return messages


async def receive_until(socket: ClientConnection, kind: str) -> Message:
    while (message := await receive(socket))["type"] != kind:
        pass
    return message


def texts_of(messages: list[Message]) -> str:
    return " ".join(m["text"].strip() for m in messages if m["type"] == "final" and m["text"])
