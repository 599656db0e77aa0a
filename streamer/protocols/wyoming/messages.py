"""Wyoming's events: what the service reads from them, and how they are written. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.api import ModelInfo
from streamer.audio.pcm import AudioFormat
from streamer.protocols.language_names import read_language
from streamer.schema import RangeError
from streamer.transcription.settings import SessionSettings
from streamer.wire import ClientFault

# how long a pause ends a segment, by what the client calls the sensitivity
SILENCE_MS = {"relaxed": 1000, "aggressive": 300}


@dataclass(frozen=True, slots=True)
class WyomingEvent:
    type: str
    data: Mapping[str, object] = field(default_factory=dict)
    payload: bytes = b""


@dataclass(frozen=True, slots=True)
class Transcribe:
    """What the next audio is asked for."""

    name: str | None = None  # of a model; the loaded one serves every name
    language: str | None = None
    vad_sensitivity: str | None = None
    transcript_names: list[str] = field(default_factory=list)  # words to listen for
    transcript_terms: list[str] = field(default_factory=list)

    @property
    def settings(self) -> SessionSettings:
        default = SessionSettings()
        return SessionSettings(
            language=read_language(self.language),
            hotwords=tuple(self.transcript_names + self.transcript_terms),
            partials=False,
            silence_ms=SILENCE_MS.get(self.vad_sensitivity or "", default.silence_ms),
        )


@dataclass(frozen=True, slots=True)
class Audio:
    """The format that audio-start and audio-chunk announce."""

    rate: int
    width: int  # bytes of a sample
    channels: int

    @property
    def format(self) -> AudioFormat:
        """Return the session's format.

        Raises:
            ClientFault: it is none that is served.
        """
        if self.width != 2 or self.channels != 1:
            raise ClientFault(
                "unsupported_audio",
                f"expected mono of width 2, got {self.channels} channels of width {self.width}",
                field="channels" if self.width == 2 else "width",
            )
        try:
            return AudioFormat("pcm_s16le", self.rate, 1)
        except RangeError as error:
            text = error.describe("rate")
            raise ClientFault("unsupported_audio", text, field="rate") from None


def encode(event: WyomingEvent) -> bytes:
    """Write an event."""
    data = (
        json.dumps(event.data, ensure_ascii=False, allow_nan=False).encode() if event.data else b""
    )
    head: dict[str, object] = {"type": event.type}
    if data:
        head["data_length"] = len(data)
    if event.payload:
        head["payload_length"] = len(event.payload)
    return json.dumps(head).encode() + b"\n" + data + event.payload


def describe(info: ModelInfo) -> WyomingEvent:
    """Describe this service."""
    attribution = {"name": "Wordwire", "url": ""}
    artifact = {"attribution": attribution, "installed": True, "version": None}
    model = {
        **artifact,
        "name": info.name,
        "description": f"Whisper {info.name}",
        "languages": list(info.languages),
    }
    program = {
        **artifact,
        "name": "wordwire",
        "description": "Real-time transcription",
        "models": [model],
        "supports_transcript_streaming": True,
    }
    return WyomingEvent("info", {"asr": [program]})
