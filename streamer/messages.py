"""The message types of `/v1/stream`; docs/protocol.md is their specification.

Use them through streamer.protocol, which knows how they look on the wire.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Encoding = Literal["pcm_s16le", "pcm_f32le", "mulaw", "alaw", "container"]
Delay = Literal["minimal", "low", "medium", "high", "xhigh"]


# --- client to server -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Start:
    """Opens the session. Optional: every field may stand in the URL's query instead."""

    encoding: Encoding = "pcm_s16le"
    sample_rate: int = 16_000  # Hz, 8000 to 48000
    channels: int = 1  # 1 or 2, interleaved; each is transcribed on its own
    language: str | None = None  # ISO 639-1; null or "auto" detects
    task: Literal["transcribe", "translate"] = "transcribe"
    prompt: str = ""
    hotwords: list[str] = dataclasses.field(default_factory=list)
    words: bool = False  # words with times in finals
    partials: bool = True
    delay: Delay = "low"
    endpointing: Literal["speech", "manual"] = "speech"  # manual: a segment ends with finalize
    silence_ms: int = 750
    pre_roll_ms: int = 300
    max_segment_s: float = 30.0
    vad_threshold: float = 0.5
    resumable: bool = False  # survives a broken connection for `resume_s` of ready


@dataclass(frozen=True, slots=True)
class Resume:
    """Continues a session after its connection broke; instead of `start`."""

    session: str  # of ready
    seq: int = -1  # of the last message that arrived; what came after it is sent again


@dataclass(frozen=True, slots=True)
class Update:
    """Changes what is given from the next segment on; null leaves a field as it is."""

    language: str | None = None  # "auto" detects
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
    encoding: Encoding
    sample_rate: int
    channels: int
    language: str | None = None  # null where it is detected
    resume_s: float | None = None  # s that a broken connection has to come back; null: none
    resumed: bool = False
    received_bytes: int = 0  # of audio, before this connection; send on from there
    seq: int = 0


@dataclass(frozen=True, slots=True)
class SpeechStarted:
    channel: int
    segment: int
    start: float  # s
    lag: float  # s of received audio that no event covers yet
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
    reason: str | None = None  # why text was withheld
    seq: int = 0


@dataclass(frozen=True, slots=True)
class Error:
    """Something was wrong; `fatal` errors are followed by the close."""

    code: str
    message: str
    fatal: bool
    field: str | None = None
    retry_after_s: float | None = None  # where coming back later helps
    seq: int = 0


@dataclass(frozen=True, slots=True)
class Reconnect:
    """The server is about to stop. Finals of all audio so far, `done` and the close follow.

    Audio after `done.duration` belongs in a new session.
    """

    retry_after_s: float
    seq: int = 0


@dataclass(frozen=True, slots=True)
class Done:
    """All audio is transcribed; the close follows."""

    duration: float  # s of audio received
    segments: int
    seq: int = 0


ClientMessage = Start | Resume | Update | Finalize | End
ServerMessage = Ready | SpeechStarted | SpeechEnded | Partial | Final | Error | Reconnect | Done

CLIENT_TYPES: Mapping[str, type[ClientMessage]] = {
    "start": Start,
    "resume": Resume,
    "update": Update,
    "finalize": Finalize,
    "end": End,
}
SERVER_TYPES: Mapping[str, type[ServerMessage]] = {
    "ready": Ready,
    "speech_started": SpeechStarted,
    "speech_ended": SpeechEnded,
    "partial": Partial,
    "final": Final,
    "error": Error,
    "reconnect": Reconnect,
    "done": Done,
}
