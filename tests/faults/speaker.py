"""A client that speaks numbered half seconds at a pace, and writes down what it is told."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.support.audio import babble, pcm16, quiet

PACKET_S = 0.1
SENTENCE_S, PAUSE_S = 2.0, 1.0


def speech(num_sentences: int) -> bytes:
    """Make sentences of two seconds with a second of quiet after each."""
    return pcm16(np.concatenate((babble(SENTENCE_S), quiet(PAUSE_S)))) * num_sentences


def words_of(num_sentences: int) -> list[str]:
    """Return the words that `speech` holds, as the deterministic engine names them."""
    period, spoken = int((SENTENCE_S + PAUSE_S) * 2), int(SENTENCE_S * 2)
    return [f"w{n}" for n in range(num_sentences * period) if n % period < spoken]


@dataclass
class Heard:
    """What one client was told."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    close_code: int | None = None

    @property
    def words(self) -> list[str]:
        """All words of finals, in order."""
        finals = [m for m in self.messages if m["type"] == "final"]
        return " ".join(m["text"] for m in finals).split()

    def kinds(self, kind: str) -> list[dict[str, Any]]:
        return [m for m in self.messages if m["type"] == kind]


async def speak(
    url: str, audio: bytes, *, pace: float = 2.0, ends: bool = True, **settings: object
) -> Heard:
    """Open a session, send audio at a multiple of real time, and read until the close."""
    heard = Heard()
    async with connect(f"{url}/v1/stream", compression=None) as socket:
        await socket.send(json.dumps({"type": "start", "language": "en", **settings}))
        sending = asyncio.create_task(send(socket, audio, pace=pace, ends=ends))
        await listen(socket, heard)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
    return heard


async def send(socket: ClientConnection, audio: bytes, *, pace: float, ends: bool = True) -> None:
    """Send audio in packets, each when its time has come."""
    size = int(PACKET_S * 32_000)
    start = asyncio.get_running_loop().time()
    with contextlib.suppress(ConnectionClosed):
        for index, first in enumerate(range(0, len(audio), size)):
            due = start + index * PACKET_S / pace
            await asyncio.sleep(due - asyncio.get_running_loop().time())
            await socket.send(audio[first : first + size])
        if ends:
            await socket.send('{"type":"end"}')


async def listen(socket: ClientConnection, heard: Heard) -> None:
    """Write down what comes until the socket closes."""
    with contextlib.suppress(ConnectionClosed):
        async for text in socket:
            heard.messages.append(json.loads(text))
    heard.close_code = socket.close_code
