"""The messages of Deepgram's live API, as its own SDK reads them; times are seconds."""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import engine.api


@dataclass(frozen=True, slots=True)
class ResultWord:
    word: str
    start: float  # s
    end: float
    confidence: float
    punctuated_word: str | None = None


@dataclass(frozen=True, slots=True)
class Alternative:
    transcript: str
    confidence: float
    words: list[ResultWord]
    languages: list[str] | None = None


@dataclass(frozen=True, slots=True)
class ResultChannel:
    alternatives: list[Alternative]


@dataclass(frozen=True, slots=True)
class ModelInfo:
    name: str
    version: str
    arch: str


@dataclass(frozen=True, slots=True)
class ResultMetadata:
    request_id: str
    model_uuid: str
    model_info: ModelInfo


@dataclass(frozen=True, slots=True)
class Results:
    """Text of [start, start + duration]; final where it will not change."""

    TYPE: ClassVar[str] = "Results"
    channel_index: list[int]  # [channel, number of channels]
    start: float
    duration: float
    is_final: bool
    speech_final: bool  # the speaker paused here
    from_finalize: bool
    channel: ResultChannel
    metadata: ResultMetadata


@dataclass(frozen=True, slots=True)
class SpeechStarted:
    TYPE: ClassVar[str] = "SpeechStarted"
    channel: list[int]
    timestamp: float


@dataclass(frozen=True, slots=True)
class UtteranceEnd:
    """No word followed the last one for utterance_end_ms."""

    TYPE: ClassVar[str] = "UtteranceEnd"
    channel: list[int]
    last_word_end: float


@dataclass(frozen=True, slots=True)
class Warned:
    """A parameter of the query that has no effect here."""

    parameter: str
    type: str
    message: str


@dataclass(frozen=True, slots=True)
class Metadata:
    TYPE: ClassVar[str] = "Metadata"
    transaction_key: str
    request_id: str
    sha256: str  # of all bytes received
    created: str  # ISO 8601
    duration: float
    channels: int
    warnings: list[Warned] | None = None


@dataclass(frozen=True, slots=True)
class ConfigureSuccess:
    TYPE: ClassVar[str] = "ConfigureSuccess"
    request_id: str
    keyterms: list[str] | None


@dataclass(frozen=True, slots=True)
class Error:
    TYPE: ClassVar[str] = "Error"
    variant: str
    description: str
    message: str | None = None  # what could not be parsed
    code: str | None = None


Message = Results | SpeechStarted | UtteranceEnd | Metadata | ConfigureSuccess | Error


def encode(message: Message) -> str:
    """Write a message as a text frame; fields without a value are left out."""
    record = {"type": message.TYPE, **plain(message)}
    return json.dumps(record, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def plain(value: object) -> dict[str, object]:
    """Turn a dataclass into what JSON knows, without the fields that are None."""
    result = _plain(value)
    assert isinstance(result, dict)
    return result


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {entry.name: getattr(value, entry.name) for entry in dataclasses.fields(value)}
        return {name: _plain(entry) for name, entry in fields.items() if entry is not None}
    if isinstance(value, list):
        return [_plain(entry) for entry in value]
    return value


def describe_model(request_id: str, info: engine.api.ModelInfo) -> ResultMetadata:
    """Describe the model that wrote the results; its id follows from its name."""
    return ResultMetadata(
        request_id=request_id,
        model_uuid=str(uuid.uuid5(uuid.NAMESPACE_OID, info.name)),
        model_info=ModelInfo(name=info.name, version=info.dtype, arch="whisper"),
    )


def warn(ignored: Sequence[str]) -> list[Warned] | None:
    """Name the parameters that were accepted and have no effect."""
    return [
        Warned(name, "unsupported_parameter", "this parameter has no effect here")
        for name in ignored
    ] or None
