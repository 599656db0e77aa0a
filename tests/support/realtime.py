"""OpenAI's own SDK as a client of Realtime, and what it is sent."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import numpy as np
import pytest
import soxr

from clients.telephone import encode_mulaw
from tests.support.audio import babble, pcm16, quiet
from tests.support.running_service import Running

openai = pytest.importorskip("openai")

TALK = np.concatenate([quiet(1.0), babble(2.0), quiet(2.0), babble(1.5, seed=2), quiet(2.0)])
FIRST, SECOND = "w2 w3 w4 w5", "w10 w11 w12"
TRANSCRIPTION = "conversation.item.input_audio_transcription"


def pcm24(samples: np.ndarray) -> bytes:
    return pcm16(soxr.resample(samples, 16_000, 24_000))


def mulaw_8k(samples: np.ndarray) -> bytes:
    return encode_mulaw(soxr.resample(samples, 16_000, 8_000))


def client_of(service: Running) -> Any:
    return openai.AsyncOpenAI(base_url=service.http + "/v1", api_key="any")


def connect(service: Running, **options: Any) -> Any:
    return client_of(service).realtime.connect(extra_query={"intent": "transcription"}, **options)


def config(**source: Any) -> dict[str, Any]:
    return {"type": "transcription", "audio": {"input": source}}


async def send_audio(connection: Any, data: bytes, chunk: int = 4800) -> None:
    for at in range(0, len(data), chunk):
        audio = base64.b64encode(data[at : at + chunk]).decode()
        await connection.input_audio_buffer.append(audio=audio)


async def receive_until(connection: Any, kind: str, count: int = 1) -> list[Any]:
    """Receive events up to the count-th of a kind."""
    events: list[Any] = []
    async with asyncio.timeout(30):
        while sum(event.type == kind for event in events) < count:
            events.append(await connection.recv())
    return events


def deltas_of(events: list[Any], item_id: str) -> str:
    return "".join(
        e.delta for e in events if e.type == f"{TRANSCRIPTION}.delta" and e.item_id == item_id
    )
