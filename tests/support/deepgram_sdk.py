"""Deepgram's SDK as a client of the running service; tests skip where it is not installed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.running_service import Running


def environment_of(service: Running) -> Any:
    environment = pytest.importorskip("deepgram.environment")
    return environment.DeepgramClientEnvironment(
        base=service.http, production=service.ws, agent=service.ws, agent_rest=service.http
    )


def client_of(service: Running, key: str = "any") -> Any:
    deepgram = pytest.importorskip("deepgram")
    return deepgram.AsyncDeepgramClient(api_key=key, environment=environment_of(service))


async def listen(
    service: Running, audio: bytes, *, chunk: int = 3200, pace_s: float = 0.0, **options: Any
) -> list[Any]:
    """Send audio as the SDK does, close the stream, and return all that came."""
    events = pytest.importorskip("deepgram.core.events")
    received: list[Any] = []
    options = {
        "model": "nova-3",
        "encoding": "linear16",
        "sample_rate": 16000,
        "punctuate": True,
        **options,
    }
    options = {k: v for k, v in options.items() if v is not None}
    async with client_of(service).listen.v1.connect(**options) as connection:
        connection.on(events.EventType.MESSAGE, received.append)
        listening = asyncio.create_task(connection.start_listening())
        for first in range(0, len(audio), chunk):
            await connection.send_media(audio[first : first + chunk])
            await asyncio.sleep(pace_s)
        await connection.send_close_stream()
        await asyncio.wait_for(listening, 30)
    return received


def kinds(received: list[Any]) -> list[str]:
    return [message.type for message in received]


def finals(received: list[Any], channel: int = 0) -> list[Any]:
    return [
        m for m in received if m.type == "Results" and m.is_final and m.channel_index[0] == channel
    ]


def text(received: list[Any], channel: int = 0) -> str:
    parts = [m.channel.alternatives[0].transcript for m in finals(received, channel)]
    return " ".join(part for part in parts if part)
