"""What a WhisperLive client asks for in its first message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from engine.api import SAMPLE_RATE, Task
from streamer import schema
from streamer.audio.pcm import AudioFormat
from streamer.protocols.language_names import read_language
from streamer.transcription.settings import SessionSettings
from streamer.wire import ClientFault, parse_object

MIN_SILENCE_MS = 100  # SessionSettings.silence_ms
# what a session's settings are called here
VAD_NAMES: Mapping[str, str] = {
    "silence_ms": "min_silence_duration_ms",
    "pre_roll_ms": "speech_pad_ms",
    "vad_threshold": "threshold",
}


@dataclass(frozen=True, slots=True)
class VadParameters:
    threshold: float | None = None
    min_silence_duration_ms: int | None = None
    speech_pad_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Hello:
    """The client's first message. `warnings` names what it asks for and does not get."""

    uid: str = ""
    language: str | None = None
    task: Literal["transcribe", "translate"] = "transcribe"
    model: str | None = None  # every name is served by the loaded model
    send_last_n_segments: int = 10
    initial_prompt: str | None = None
    word_timestamps: bool = False
    audio_format: Literal["float32", "int16", "uint8"] = "float32"
    enable_translation: bool = False
    enable_diarization: bool = False
    vad_parameters: VadParameters | None = None
    hotwords: list[str] = field(default_factory=list)

    @property
    def format(self) -> AudioFormat:
        """What the session is fed; uint8 is widened to 16 bits first."""
        encoding = "pcm_f32le" if self.audio_format == "float32" else "pcm_s16le"
        return AudioFormat(encoding, SAMPLE_RATE, 1)

    @property
    def settings(self) -> SessionSettings:
        """What the session is asked for.

        Raises:
            ClientFault: names the field that is out of its range.
        """
        vad = self.vad_parameters or VadParameters()
        default = SessionSettings()
        silence_ms, pad_ms = vad.min_silence_duration_ms, vad.speech_pad_ms
        if silence_ms is not None:
            silence_ms = max(MIN_SILENCE_MS, silence_ms)
        try:
            return SessionSettings(
                language=read_language(self.language),
                task=Task(self.task),
                prompt=self.initial_prompt or "",
                hotwords=tuple(self.hotwords),
                word_times=self.word_timestamps,
                silence_ms=default.silence_ms if silence_ms is None else silence_ms,
                pre_roll_ms=default.pre_roll_ms if pad_ms is None else pad_ms,
                vad_threshold=default.vad_threshold if vad.threshold is None else vad.threshold,
            )
        except schema.RangeError as error:
            name = "vad_parameters." + VAD_NAMES[error.field]
            raise ClientFault("invalid_value", error.describe(name), field=name) from None

    @property
    def warnings(self) -> list[str]:
        """What was asked for and is not served."""
        asked = (
            (self.enable_translation, "translation beside the transcript"),
            (self.enable_diarization, "diarization"),
        )
        return [f"{name} is not served here" for is_asked, name in asked if is_asked]


def parse_hello(text: str) -> Hello:
    """Read the client's first message.

    Raises:
        ClientFault: not a JSON object, or a field of the wrong type.
    """
    values = parse_object(text)
    hotwords = values.get("hotwords")
    if isinstance(hotwords, str):  # faster-whisper takes one string
        words = (word.strip() for word in hotwords.split(","))
        values["hotwords"] = [word for word in words if word]
    if not isinstance(values.get("uid"), str) and values.get("uid") is not None:
        values["uid"] = str(values["uid"])
    try:
        hello, _ = schema.build(Hello, values)
    except schema.FieldError as error:
        raise ClientFault("invalid_field", str(error), field=error.field) from None
    return hello
