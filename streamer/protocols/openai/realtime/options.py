"""What a Realtime client asks for: the session object of `session.update`, old and new shape.

The effective session is kept as the JSON that clients see. An update is laid over it, and what
comes out is checked as a whole, so that a field left out stays as it was and null means off.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from engine.api import ModelInfo
from streamer import schema
from streamer.audio.pcm import AudioFormat
from streamer.protocols.model_names import LIVE_ALIASES
from streamer.protocols.openai.error import ApiError, check_language, check_model
from streamer.transcription.settings import Delay, Endpointing, SessionSettings

LOGPROBS = "item.input_audio_transcription.logprobs"
PCM_RATE = 24_000  # Hz; the only one of audio/pcm
# without a model of turns, eagerness is how long a pause may be
TURN_NAMES: Mapping[str, str] = {  # what a session's settings are called here
    "silence_ms": "silence_duration_ms",
    "pre_roll_ms": "prefix_padding_ms",
    "vad_threshold": "threshold",
}
EAGERNESS_MS = {"low": 1500, "medium": 800, "auto": 800, "high": 400}
BETA_FORMATS = {"pcm16": "audio/pcm", "g711_ulaw": "audio/pcmu", "g711_alaw": "audio/pcma"}
BETA_NAMES = {  # of the Beta's flat session, and where they stand now
    "input_audio_format": "format",
    "input_audio_transcription": "transcription",
    "input_audio_noise_reduction": "noise_reduction",
    "turn_detection": "turn_detection",
}


@dataclass(frozen=True, slots=True)
class _Format:
    type: Literal["audio/pcm", "audio/pcmu", "audio/pcma"]
    rate: int | None = None


@dataclass(frozen=True, slots=True)
class _NoiseReduction:
    type: Literal["near_field", "far_field"] | None = None
    strength: float | None = None


@dataclass(frozen=True, slots=True)
class _Transcription:
    model: str | None = None
    language: str | None = None
    languages: list[str] = field(default_factory=list)
    prompt: str | None = None
    keywords: list[str] = field(default_factory=list)
    delay: Literal["minimal", "low", "medium", "high", "xhigh"] | None = None


@dataclass(frozen=True, slots=True)
class _TurnDetection:
    type: Literal["server_vad", "semantic_vad"]
    threshold: float = 0.5
    prefix_padding_ms: int = 300
    silence_duration_ms: int = 500
    eagerness: Literal["low", "medium", "high", "auto"] = "auto"
    create_response: bool | None = None
    interrupt_response: bool | None = None
    idle_timeout_ms: int | None = None


@dataclass(frozen=True, slots=True)
class _Input:
    format: _Format
    noise_reduction: _NoiseReduction | None = None
    transcription: _Transcription | None = None
    turn_detection: _TurnDetection | None = None


@dataclass(frozen=True, slots=True)
class _Audio:
    input: _Input


@dataclass(frozen=True, slots=True)
class _Session:
    audio: _Audio
    type: Literal["transcription"] = "transcription"
    include: list[str] = field(default_factory=list)


class RealtimeConfig:
    """The effective session. Immutable: an update makes another one."""

    def __init__(self, info: ModelInfo, session: Mapping[str, Any] | None = None) -> None:
        """Check a session object and take it; without one, the defaults.

        Raises:
            ApiError: a value that cannot be used.
        """
        self._info = info
        given = session if session is not None else _defaults(info)
        try:
            parsed, _ = schema.build(_Session, given, "session.")
        except schema.FieldError as error:
            raise ApiError(str(error), code="invalid_value", param=error.field) from None
        # as clients see it, without the fields that mean nothing here; never changed in place
        self._json: dict[str, Any] = _keep_known(given, dataclasses.asdict(parsed))
        source = parsed.audio.input
        transcription = source.transcription or _Transcription()
        if transcription.model is not None:
            check_model(transcription.model, info, param="session.audio.input.transcription.model")
        self.audio_format = _audio_format(source.format)
        self.is_manual = source.turn_detection is None
        self.is_live = transcription.model in LIVE_ALIASES
        self.has_logprobs = LOGPROBS in parsed.include
        settings = _settings(info, transcription, source.turn_detection, self.has_logprobs)
        # a model that writes after the turn reads it whole: better text for less work
        self.settings = dataclasses.replace(settings, partials=self.is_live)

    def update(self, changes: Mapping[str, Any]) -> RealtimeConfig:
        """Lay the changes of a `session.update` over this session; either shape is understood.

        Raises:
            ApiError: a value that cannot be used. This session stays as it is.
        """
        kind = changes.get("type", "transcription")
        if kind != "transcription":
            raise ApiError(
                f"expected a session of type 'transcription', got {kind!r:.40}: "
                "this service transcribes and gives no responses",
                code="invalid_value",
                param="session.type",
            )
        session = copy.deepcopy(self._json)
        modern = _modernize(changes)
        audio = modern.get("audio")
        source = audio.get("input") if isinstance(audio, dict) else audio
        if source is not None and not isinstance(source, dict):
            raise ApiError(
                "session.audio.input: expected an object",
                code="invalid_value",
                param="session.audio.input",
            )
        for name, value in (source or {}).items():
            held = session["audio"]["input"].get(name)
            is_same_kind = (
                isinstance(held, dict)
                and isinstance(value, dict)
                and (value.get("type", held.get("type")) == held.get("type"))
            )
            session["audio"]["input"][name] = {**held, **value} if is_same_kind else value
        if modern.get("include") is not None:
            session["include"] = modern["include"]
        return RealtimeConfig(self._info, session)

    def describe(self, session_id: str) -> dict[str, Any]:
        """Return the session object of `session.created` and `session.updated`."""
        return {
            "id": session_id,
            "object": "realtime.transcription_session",
            **copy.deepcopy(self._json),
        }

    def describe_old(self, session_id: str) -> dict[str, Any]:
        """Return the same in the Beta's flat shape."""
        source = self._json["audio"]["input"]
        flat = {old: copy.deepcopy(source.get(new)) for old, new in BETA_NAMES.items()}
        names = {new: old for old, new in BETA_FORMATS.items()}
        flat["input_audio_format"] = names[source["format"]["type"]]
        return {
            "id": session_id,
            "object": "realtime.transcription_session",
            **flat,
            "include": list(self._json["include"]),
        }


def _keep_known(given: Any, known: Any) -> Any:
    if not isinstance(given, Mapping) or not isinstance(known, dict):
        return copy.deepcopy(given)
    return {name: _keep_known(given[name], known[name]) for name in given if name in known}


def _defaults(info: ModelInfo) -> dict[str, Any]:
    return {
        "type": "transcription",
        "audio": {
            "input": {
                "format": {"type": "audio/pcm", "rate": PCM_RATE},
                "noise_reduction": None,
                "transcription": {"model": info.name, "language": None, "prompt": ""},
                "turn_detection": {
                    "type": "server_vad",
                    "threshold": 0.5,
                    "prefix_padding_ms": 300,
                    "silence_duration_ms": 500,
                },
            }
        },
        "include": [],
    }


def _modernize(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Write the Beta's flat fields as the present ones."""
    modern = dict(changes)
    flat = {new: modern.pop(old) for old, new in BETA_NAMES.items() if old in modern}
    if not flat:
        return modern
    if isinstance(flat.get("format"), str):
        name = flat["format"]
        flat["format"] = {"type": BETA_FORMATS.get(name, name)}
    audio = modern.get("audio")
    nested = audio.get("input") if isinstance(audio, dict) else audio
    if nested is None or isinstance(nested, dict):  # else `update` says what was expected
        modern["audio"] = {"input": {**flat, **(nested or {})}}
    return modern


def _audio_format(wanted: _Format) -> AudioFormat:
    rate = PCM_RATE if wanted.type == "audio/pcm" else 8_000
    if wanted.rate not in (None, rate):
        raise ApiError(
            f"expected a rate of {rate} Hz for {wanted.type}, got {wanted.rate}",
            code="invalid_value",
            param="session.audio.input.format.rate",
        )
    encodings = {"audio/pcm": "pcm_s16le", "audio/pcmu": "mulaw", "audio/pcma": "alaw"}
    return AudioFormat(encodings[wanted.type], rate, 1)


def _settings(
    info: ModelInfo,
    transcription: _Transcription,
    turns: _TurnDetection | None,
    has_logprobs: bool,
) -> SessionSettings:
    where = "session.audio.input.transcription.language"
    # of several possible languages the model finds out itself which one is spoken
    only = transcription.languages[0] if len(transcription.languages) == 1 else None
    settings = SessionSettings(
        language=check_language(transcription.language or only, info, param=where),
        prompt=transcription.prompt or "",
        hotwords=tuple(transcription.keywords),
        word_times=has_logprobs,
        delay=Delay(transcription.delay or "low"),
    )
    if turns is None:
        return dataclasses.replace(settings, endpointing=Endpointing.MANUAL)
    if turns.idle_timeout_ms is not None:
        raise ApiError(
            "expected idle_timeout_ms to be null: there are no responses to time out for",
            code="unsupported_value",
            param="session.audio.input.turn_detection.idle_timeout_ms",
        )
    silence_ms = turns.silence_duration_ms
    if turns.type == "semantic_vad":
        silence_ms = EAGERNESS_MS[turns.eagerness]
    try:
        return dataclasses.replace(
            settings,
            silence_ms=silence_ms,
            pre_roll_ms=turns.prefix_padding_ms,
            vad_threshold=turns.threshold,
        )
    except schema.RangeError as error:
        name = "session.audio.input.turn_detection." + TURN_NAMES[error.field]
        raise ApiError(error.describe(name), code="invalid_value", param=name) from None
