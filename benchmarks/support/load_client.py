"""Clients of the load benchmark: each speaks one protocol at the pace of real time.

They share nothing with the service's own client: what they measure is what a stranger sees.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from benchmarks.support.talk import Talk

PACKET_S = 0.1
BYTES_PER_S = 32_000


@dataclass(frozen=True, slots=True)
class Said:
    """A text that the service will not change any more."""

    text: str
    end_s: float  # of the audio that it covers
    at_s: float  # when it arrived, from the start of the audio


@dataclass(slots=True)
class Visit:
    """What became of one client."""

    finals: list[Said] = field(default_factory=list)
    first_text_s: list[float] = field(default_factory=list)  # from a segment's start
    lags_s: list[float] = field(default_factory=list)  # as the service reports it
    refused: str | None = None  # before the session began
    error: str | None = None
    left_early: bool = False  # by its own will

    @property
    def text(self) -> str:
        return " ".join(said.text.strip() for said in self.finals if said.text.strip())


# takes a message and the seconds since the start; writes into the visit; True ends the session
Read = Callable[[Visit, dict[str, Any], float], bool]


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a protocol opens, sends audio, ends, and reports text."""

    path: str
    opening: str | None
    wrap: Callable[[bytes], bytes | str]
    ending: tuple[bytes | str, ...]
    make_reader: Callable[[], Read]


def _native() -> Read:
    open_at: dict[int, float] = {}  # start of the open segment
    ends: dict[int, float] = {}  # where speech ended, by segment

    def read(visit: Visit, message: dict[str, Any], now_s: float) -> bool:
        match message["type"]:
            case "speech_started":
                open_at[message["segment"]] = message["start"]
            case "speech_ended":
                ends[message["segment"]] = message["end"]
            case "partial":
                visit.lags_s.append(message["lag"])
                if (start_s := open_at.pop(message["segment"], None)) is not None:
                    visit.first_text_s.append(now_s - start_s)
            case "final":
                end_s = ends.pop(message["segment"], message["end"])
                visit.finals.append(Said(message["text"], end_s, now_s))
            case "error" if message["fatal"]:
                visit.error = message["code"]
        return bool(message["type"] == "done")

    return read


def _deepgram() -> Read:
    def read(visit: Visit, message: dict[str, Any], now_s: float) -> bool:
        match message["type"]:
            case "Results" if message["is_final"]:
                text = message["channel"]["alternatives"][0]["transcript"]
                end_s = message["start"] + message["duration"]
                visit.finals.append(Said(text, end_s, now_s))
            case "Error":
                visit.error = str(message.get("description"))
        return bool(message["type"] == "Metadata")

    return read


def _realtime() -> Read:
    ends: dict[str, float] = {}

    def read(visit: Visit, message: dict[str, Any], now_s: float) -> bool:
        match message["type"]:
            case "input_audio_buffer.speech_stopped":
                ends[message["item_id"]] = message["audio_end_ms"] / 1000
            case "conversation.item.input_audio_transcription.completed":
                end_s = ends.get(message["item_id"], now_s)
                visit.finals.append(Said(message["transcript"], end_s, now_s))
            case "error" if message["error"]["code"] != "input_audio_buffer_commit_empty":
                visit.error = message["error"]["code"]
        return False

    return read


def _whisperlive() -> Read:
    known: set[str] = set()  # starts of the segments that are complete: they are repeated

    def read(visit: Visit, message: dict[str, Any], now_s: float) -> bool:
        for segment in message.get("segments", ()):
            if segment.get("completed") and segment["start"] not in known:
                known.add(segment["start"])
                visit.finals.append(Said(segment["text"], float(segment["end"]), now_s))
        match message.get("status"):
            case "WAIT":  # so many minutes
                visit.refused = "WAIT"
            case "ERROR":
                visit.error = str(message["message"])
        return visit.refused is not None

    return read


def _to_24k(pcm: bytes) -> str:
    """Resample in straight lines: load does not care for quality, but texts should be alike."""
    samples = np.frombuffer(pcm, "<i2").astype(np.float32)
    position = np.arange(len(samples) * 3 // 2) * (2 / 3)
    resampled = np.interp(position, np.arange(len(samples)), samples).astype("<i2")
    audio = base64.b64encode(resampled.tobytes()).decode()
    return json.dumps({"type": "input_audio_buffer.append", "audio": audio})


def _to_float(pcm: bytes) -> bytes:
    return (np.frombuffer(pcm, "<i2").astype(np.float32) / 32768).tobytes()


def _same(pcm: bytes) -> bytes:
    return pcm


_TRANSCRIPTION = {"model": "whisper-1", "language": "en"}
DIALECTS: Mapping[str, Dialect] = {
    "native": Dialect(
        "/v1/stream",
        '{"type":"start","language":"en"}',
        _same,
        ('{"type":"end"}',),
        _native,
    ),
    "deepgram": Dialect(
        "/v1/listen?language=en&encoding=linear16&sample_rate=16000&endpointing=500",
        None,
        _same,
        ('{"type":"CloseStream"}',),
        _deepgram,
    ),
    "realtime": Dialect(
        "/v1/realtime?intent=transcription",
        json.dumps(
            {
                "type": "session.update",
                "session": {
                    "type": "transcription",
                    "audio": {"input": {"transcription": _TRANSCRIPTION}},
                },
            }
        ),
        _to_24k,
        (),
        _realtime,
    ),
    "whisperlive": Dialect(
        "/v1/whisperlive",
        json.dumps({"uid": "load", "language": "en", "task": "transcribe", "model": "base"}),
        _to_float,
        (b"END_OF_AUDIO",),
        _whisperlive,
    ),
}


async def visit(
    url: str, protocol: str, talk: Talk, *, key: str | None, leaves_after_s: float | None
) -> Visit:
    """Play a talk to the service, and note what comes back.

    Args:
        leaves_after_s: break the connection off there, without a word; None: stay to the end.
    """
    dialect, found = DIALECTS[protocol], Visit()
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        socket = await connect(
            url + dialect.path,
            additional_headers=headers,
            compression=None,
            max_size=None,
            ping_timeout=None,
            open_timeout=20,
        )
    except InvalidStatus as error:
        found.refused = f"HTTP {error.response.status_code}"
        return found
    except (OSError, TimeoutError, InvalidHandshake) as error:
        found.refused = type(error).__name__
        return found
    try:
        if dialect.opening is not None:
            await socket.send(dialect.opening)
        start = time.monotonic()
        sending = asyncio.create_task(_send(socket, dialect, talk.pcm, start, leaves_after_s))
        try:
            await _listen(socket, found, dialect.make_reader(), start)
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        found.left_early = leaves_after_s is not None
    finally:
        await socket.close()
    return found


async def _send(
    socket: ClientConnection,
    dialect: Dialect,
    pcm: bytes,
    start: float,
    leaves_after_s: float | None,
) -> None:
    with contextlib.suppress(ConnectionClosed):
        for index, packet in enumerate(_packets(pcm)):
            await asyncio.sleep(start + (index + 1) * PACKET_S - time.monotonic())
            if leaves_after_s is not None and index * PACKET_S > leaves_after_s:
                socket.transport.abort()
                return
            await socket.send(dialect.wrap(packet))
        for message in dialect.ending:
            await socket.send(message)
        if not dialect.ending:
            # Realtime has no end: the last pause makes the last text final
            await asyncio.sleep(5.0)
            await socket.close()


def _packets(pcm: bytes) -> Iterator[bytes]:
    size = int(PACKET_S * BYTES_PER_S)
    for first in range(0, len(pcm), size):
        yield pcm[first : first + size]


async def _listen(socket: ClientConnection, found: Visit, read: Read, start: float) -> None:
    try:
        async for text in socket:
            if read(found, json.loads(text), time.monotonic() - start):
                return
    except ConnectionClosed as error:
        if error.rcvd is not None and error.rcvd.code not in (1000, 1012):
            found.error = found.error or f"close {error.rcvd.code}"
