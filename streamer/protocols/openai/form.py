"""The fields of a transcription request. Pure; streamer.protocols.openai.body reads the form."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import BinaryIO

from starlette.datastructures import FormData, UploadFile

from engine.api import ModelInfo, Task
from streamer.audio.probe import RawFormat
from streamer.protocols.openai.error import ApiError, check_language, check_model
from streamer.schema import RangeError
from streamer.transcription.settings import SessionSettings

FORMATS = ("json", "text", "srt", "verbose_json", "vtt")
GRANULARITIES = ("segment", "word")
# files without a container; what they hold is agreed on in docs/openai.md
RAW_SUFFIXES = (".pcm", ".raw")
FIELD_NAMES: Mapping[str, str] = {  # what a session's settings are called here
    "vad_threshold": "chunking_strategy.threshold",
    "pre_roll_ms": "chunking_strategy.prefix_padding_ms",
    "silence_ms": "chunking_strategy.silence_duration_ms",
}
RAW_FORMAT = RawFormat("s16le", 16_000, 1)


@dataclass(frozen=True, slots=True)
class TranscriptionRequest:
    """What a client asks for. Its file lasts as long as the form is open."""

    file: BinaryIO
    raw: RawFormat | None  # the file has no container and is this
    settings: SessionSettings
    response_format: str
    has_segments: bool
    has_words: bool
    has_logprobs: bool
    streams: bool

    @property
    def task(self) -> str:
        return self.settings.task.value


def parse_form(form: FormData, info: ModelInfo, task: Task) -> TranscriptionRequest:
    """Check the fields of a form.

    Raises:
        ApiError: names the first one that cannot be used.
    """
    file = form.get("file")
    if not isinstance(file, UploadFile):
        raise ApiError("expected a file in the field 'file'", code="missing_file", param="file")
    model = _text(form, "model")
    if not model:
        raise ApiError("expected the field 'model'", code="missing_model", param="model")
    check_model(model, info)
    response_format = _choice(form, "response_format", FORMATS) or "json"
    streams = _flag(form, "stream")
    if streams and response_format not in ("json", "text"):
        raise ApiError(
            f"expected response_format json with stream, got {response_format!r}",
            code="unsupported_value",
            param="response_format",
        )
    granularities = _granularities(form, response_format)
    has_words = "word" in granularities
    has_logprobs = "logprobs" in _texts(form, "include")
    return TranscriptionRequest(
        file=file.file,
        raw=RAW_FORMAT if (file.filename or "").lower().endswith(RAW_SUFFIXES) else None,
        settings=_settings(form, info, task, word_times=has_words or has_logprobs),
        response_format=response_format,
        has_segments=not granularities or "segment" in granularities,
        has_words=has_words,
        has_logprobs=has_logprobs,
        streams=streams,
    )


def _granularities(form: FormData, response_format: str) -> list[str]:
    granularities = _texts(form, "timestamp_granularities")
    for name in granularities:
        if name not in GRANULARITIES:
            raise ApiError(
                f"expected timestamp_granularities of segment and word, got {name!r:.40}",
                code="invalid_value",
                param="timestamp_granularities[]",
            )
    if granularities and response_format != "verbose_json":
        raise ApiError(
            "expected response_format verbose_json with timestamp_granularities",
            code="unsupported_value",
            param="response_format",
        )
    return granularities


def _settings(form: FormData, info: ModelInfo, task: Task, *, word_times: bool) -> SessionSettings:
    languages = _texts(form, "languages")
    # of several possible languages the model finds out itself which one is spoken
    language = _text(form, "language") or (languages[0] if len(languages) == 1 else None)
    turns = _turns(form)
    try:
        return SessionSettings(
            language=check_language(language, info),
            task=task,
            prompt=_text(form, "prompt") or "",
            hotwords=tuple(_texts(form, "keywords")),
            word_times=word_times,
            temperature=_number(form, "temperature") or 0.0,
            vad_threshold=turns.threshold,
            pre_roll_ms=int(turns.prefix_padding_ms),
            silence_ms=int(turns.silence_duration_ms),
        )
    except RangeError as error:
        name = FIELD_NAMES.get(error.field, error.field)
        raise ApiError(error.describe(name), code="invalid_value", param=name) from None


@dataclass(frozen=True, slots=True)
class _Turns:
    """`chunking_strategy` with numbers of its own."""

    threshold: float = 0.5
    prefix_padding_ms: float = 300
    # checked, and without effect: a file is cut at every pause, and text into the model's segments
    silence_duration_ms: float = 500


def _turns(form: FormData) -> _Turns:
    """Read `chunking_strategy`: "auto", an object, or its fields as the SDK writes them."""
    name = "chunking_strategy"
    text = _text(form, name)
    values: dict[str, object] = {
        key.removeprefix(f"{name}[").removesuffix("]"): value
        for key, value in form.items()
        if key.startswith(f"{name}[")
    }
    if text and text != "auto":
        try:
            parsed = json.loads(text)
        except (ValueError, RecursionError):
            parsed = None
        if not isinstance(parsed, dict):
            raise ApiError(
                f"expected chunking_strategy auto or an object, got {text!r:.40}",
                code="invalid_value",
                param=name,
            )
        values = parsed
    if values.get("type", "server_vad") != "server_vad":
        raise ApiError(
            "expected chunking_strategy of type server_vad", code="invalid_value", param=name
        )
    numbers = {}
    for key in ("threshold", "prefix_padding_ms", "silence_duration_ms"):
        if values.get(key) is not None:
            numbers[key] = _read_number(str(values[key]), f"{name}.{key}")
    return _Turns(**numbers)


def _text(form: FormData, name: str) -> str | None:
    value = form.get(name)
    if isinstance(value, UploadFile):
        raise ApiError(f"expected text in the field {name!r}", code="invalid_value", param=name)
    return value


def _texts(form: FormData, name: str) -> list[str]:
    """Read a list: the name, bare, with brackets, or numbered in them as PHP does."""
    numbered = re.compile(re.escape(name) + r"(\[\d*\])?")
    values = [value for key, value in form.multi_items() if numbered.fullmatch(key)]
    return [value for value in values if isinstance(value, str) and value]


def _choice(form: FormData, name: str, choices: tuple[str, ...]) -> str | None:
    value = _text(form, name)
    if value and value not in choices:
        raise ApiError(
            f"expected {name} to be one of {', '.join(choices)}, got {value!r:.40}",
            code="invalid_value",
            param=name,
        )
    return value or None


def _flag(form: FormData, name: str) -> bool:
    value = (_text(form, name) or "false").lower()
    if value not in ("true", "false", "1", "0"):
        raise ApiError(
            f"expected {name} to be true or false, got {value!r:.40}",
            code="invalid_value",
            param=name,
        )
    return value in ("true", "1")


def _number(form: FormData, name: str) -> float | None:
    value = _text(form, name)
    return _read_number(value, name) if value else None


def _read_number(text: str, name: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ApiError(
            f"expected {name} to be a number, got {text!r:.40}", code="invalid_value", param=name
        )
    return number
