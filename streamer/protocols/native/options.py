"""What a client of `/v1/stream` may ask for, in the service's own terms."""

from __future__ import annotations

import dataclasses

from engine.api import ModelInfo, Task
from streamer.protocol import Start, Update
from streamer.protocols.language_names import read_language
from streamer.schema import RangeError
from streamer.transcription.settings import Delay, Endpointing, SessionSettings
from streamer.wire import ClientFault


def read_settings(start: Start) -> SessionSettings:
    """Read what a start asks for.

    Raises:
        ClientFault: fatal; names the field that is out of its range.
    """
    try:
        return SessionSettings(
            language=read_language(start.language),
            task=Task(start.task),
            prompt=start.prompt,
            hotwords=tuple(start.hotwords),
            word_times=start.words,
            partials=start.partials,
            delay=Delay(start.delay),
            endpointing=Endpointing(start.endpointing),
            silence_ms=start.silence_ms,
            pre_roll_ms=start.pre_roll_ms,
            max_segment_s=start.max_segment_s,
            vad_threshold=start.vad_threshold,
        )
    except RangeError as error:
        raise ClientFault("invalid_value", str(error), field=error.field, is_fatal=True) from None


def updated(settings: SessionSettings, update: Update) -> SessionSettings:
    """Return the settings with what an update changes."""
    if update.language is not None:
        settings = dataclasses.replace(settings, language=read_language(update.language))
    if update.prompt is not None:
        settings = dataclasses.replace(settings, prompt=update.prompt)
    if update.hotwords is not None:
        settings = dataclasses.replace(settings, hotwords=tuple(update.hotwords))
    return settings


def check_language(name: str | None, info: ModelInfo) -> None:
    """Refuse a language before the engine has to.

    Raises:
        ClientFault: "invalid_request"; the model does not know it.
    """
    code = read_language(name)
    if code is not None and code not in info.languages:
        raise ClientFault(
            "invalid_request",
            f"language: expected one that {info.name} knows, got {name!r:.40}",
            field="language",
        )
