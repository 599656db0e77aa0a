"""The messages of `/v1/stream`, as both sides use them. docs/protocol.md is their specification.

Text frames are one JSON object with a `type`; binary frames are audio. Times are seconds from the
start of the stream, rounded to a millisecond. Only this module knows how a message looks on the
wire; it does no I/O.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from dataclasses import dataclass
from typing import Any

PATH = "/v1/stream"


class ProtocolError(Exception):
    """The client's fault: what was expected and what was found.

    Attributes:
        code: a stable name for programs, such as "invalid_json".
        is_fatal: the session cannot go on; the socket closes with 1008.
    """

    def __init__(self, code: str, message: str, *, is_fatal: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.is_fatal = is_fatal


# --- client to server -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Start:
    """Opens the session. Optional: every field may stand in the URL's query instead."""

    encoding: str = "pcm_s16le"  # pcm_s16le, pcm_f32le, mulaw, alaw
    sample_rate: int = 16_000  # Hz
    channels: int = 1  # 1 or 2, interleaved; each is transcribed on its own
    language: str | None = None  # ISO 639-1; null detects
    task: str = "transcribe"  # or "translate"
    prompt: str = ""
    hotwords: list[str] = dataclasses.field(default_factory=list)
    words: bool = False  # words with times in finals
    partials: bool = True
    delay: str = "low"  # minimal, low, medium, high, xhigh
    endpointing: str = "speech"  # or "manual": a segment ends with finalize
    silence_ms: int = 500
    pre_roll_ms: int = 300
    max_segment_s: float = 30.0
    vad_threshold: float = 0.5


@dataclass(frozen=True, slots=True)
class Update:
    """Changes the language, the prompt or the hotwords from the next segment on."""

    language: str | None = None
    prompt: str | None = None
    hotwords: list[str] | None = None


@dataclass(frozen=True, slots=True)
class Finalize:
    """Closes the open segment now; its final follows. The stream goes on."""


@dataclass(frozen=True, slots=True)
class End:
    """No more audio. Every word said before arrives in a final, then `done`, then the close."""


# --- server to client -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ready:
    """The session is open; the settings in force."""

    session: str
    model: str
    encoding: str
    sample_rate: int
    channels: int
    language: str | None
    seq: int = 0


@dataclass(frozen=True, slots=True)
class SpeechStarted:
    channel: int
    segment: int
    start: float  # s
    lag: float  # s of received sound that no event covers yet
    seq: int = 0


@dataclass(frozen=True, slots=True)
class SpeechEnded:
    channel: int
    segment: int
    end: float
    lag: float
    seq: int = 0


@dataclass(frozen=True, slots=True)
class Partial:
    """The open segment so far: `settled` only grows, `volatile` may change."""

    channel: int
    segment: int
    settled: str
    volatile: str
    start: float
    end: float
    language: str
    lag: float
    seq: int = 0


@dataclass(frozen=True, slots=True)
class Word:
    text: str
    start: float
    end: float
    probability: float


@dataclass(frozen=True, slots=True)
class Final:
    """A closed segment. Never changes; begins with all that was settled of it."""

    channel: int
    segment: int
    text: str
    start: float
    end: float
    language: str
    is_endpoint: bool  # false where a long segment was cut and speech goes on
    lag: float
    words: list[Word] | None = None  # where asked for
    seq: int = 0


@dataclass(frozen=True, slots=True)
class Error:
    """Something was wrong; `fatal` errors are followed by the close."""

    code: str
    message: str
    fatal: bool
    seq: int = 0


@dataclass(frozen=True, slots=True)
class Done:
    """All audio is transcribed; the close follows."""

    duration: float  # s of audio received
    segments: int
    seq: int = 0


ClientMessage = Start | Update | Finalize | End
ServerMessage = Ready | SpeechStarted | SpeechEnded | Partial | Final | Error | Done

CLIENT_TYPES: dict[str, type[ClientMessage]] = {
    "start": Start,
    "update": Update,
    "finalize": Finalize,
    "end": End,
}
SERVER_TYPES: dict[str, type[ServerMessage]] = {
    "ready": Ready,
    "speech_started": SpeechStarted,
    "speech_ended": SpeechEnded,
    "partial": Partial,
    "final": Final,
    "error": Error,
    "done": Done,
}
