"""What the TwiML of a call may ask for, by the parameters that it gives to a stream."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from engine.api import Task
from streamer import schema
from streamer.audio.pcm import AudioFormat
from streamer.protocols.language_names import read_language
from streamer.protocols.twilio.messages import Start
from streamer.transcription.settings import Delay, SessionSettings
from streamer.wire import ClientFault


@dataclass(frozen=True, slots=True)
class _Parameters:
    language: str = ""
    task: Literal["transcribe", "translate"] = "transcribe"
    prompt: str = ""
    hotwords: list[str] = field(default_factory=list)
    delay: Literal["minimal", "low", "medium", "high", "xhigh"] = "low"
    silence_ms: int = SessionSettings().silence_ms


def read_settings(start: Start) -> SessionSettings:
    """Read the parameters of a stream; what is not known is for others.

    Raises:
        ClientFault: "refused"; names the parameter.
    """
    known = schema.field_names(_Parameters)
    texts = {name: [value] for name, value in start.parameters.items() if name in known}
    try:
        read, _ = schema.build_from_strings(_Parameters, texts)
        return SessionSettings(
            language=read_language(read.language),
            task=Task(read.task),
            prompt=read.prompt,
            hotwords=tuple(read.hotwords),
            word_times=True,
            delay=Delay(read.delay),
            silence_ms=read.silence_ms,
        )
    except (schema.FieldError, schema.RangeError) as error:
        raise ClientFault("refused", str(error), field=error.field, is_fatal=True) from None


def read_format(start: Start) -> AudioFormat:
    """Read how a stream's audio comes.

    Raises:
        ClientFault: "refused"; names the field.
    """
    try:
        return AudioFormat(start.encoding, start.sample_rate, len(start.tracks))
    except schema.RangeError as error:
        name = {"sample_rate": "start.mediaFormat.sampleRate"}.get(error.field, error.field)
        raise ClientFault("refused", error.describe(name), field=name, is_fatal=True) from None
