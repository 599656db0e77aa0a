"""The protocol of `/v1/stream`, as both sides use it. docs/protocol.md is its specification.

Text frames are one JSON object with a `type`; binary frames are audio. Times are seconds from the
start of the stream, rounded to a millisecond. Only this module knows how a message looks on the
wire; it does no I/O.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass

import engine.api
from streamer import schema
from streamer.messages import (
    CLIENT_TYPES,
    SERVER_TYPES,
    ClientMessage,
    Done,
    Encoding,
    End,
    Error,
    Final,
    Finalize,
    Partial,
    Ready,
    Reconnect,
    Resume,
    ServerMessage,
    SpeechEnded,
    SpeechStarted,
    Start,
    Update,
    Word,
)
from streamer.transcription import events
from streamer.wire import ClientFault, parse_object, seconds

__all__ = [
    "CLIENT_TYPES",
    "SERVER_TYPES",
    "ClientFault",
    "ClientMessage",
    "Done",
    "Encoding",
    "End",
    "Error",
    "Final",
    "Finalize",
    "Parsed",
    "Partial",
    "Ready",
    "Reconnect",
    "Resume",
    "ServerMessage",
    "SpeechEnded",
    "SpeechStarted",
    "Start",
    "Update",
    "Word",
]

PATH = "/v1/stream"

_NAMES: Mapping[type[object], str] = {
    cls: name for types in (CLIENT_TYPES, SERVER_TYPES) for name, cls in types.items()
}


# --- text to messages and back ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Parsed:
    """A client's message, and the names in it that this version does not know."""

    message: ClientMessage
    ignored: tuple[str, ...]


def parse_client(text: str) -> Parsed:
    """Read a client's text frame.

    Raises:
        ClientFault: not a JSON object, no known type, or a field of the wrong type.
    """
    values = parse_object(text)
    name = values.pop("type", None)
    if not isinstance(name, str) or name not in CLIENT_TYPES:
        expected = ", ".join(f'"{known}"' for known in CLIENT_TYPES)
        raise ClientFault(
            "unknown_type",
            f"type: expected one of {expected}, got {schema.quote(name)}",
            field="type",
        )
    try:
        message, ignored = schema.build(CLIENT_TYPES[name], values)
    except schema.FieldError as error:
        raise ClientFault("invalid_field", str(error), field=error.field) from None
    return Parsed(message, tuple(ignored))


def parse_query(parameters: Mapping[str, list[str]]) -> Parsed:
    """Read a `start` from the URL's query parameters, each name with all its values.

    Raises:
        ClientFault: a value does not read as the field's type.
    """
    try:
        message, ignored = schema.build_from_strings(Start, parameters)
    except schema.FieldError as error:
        raise ClientFault("invalid_field", str(error), field=error.field, is_fatal=True) from None
    return Parsed(message, tuple(ignored))


def has_start(parameters: Mapping[str, list[str]]) -> bool:
    """Return whether query parameters open the session by themselves."""
    return not schema.field_names(Start).isdisjoint(parameters)


def parse_server(text: str) -> ServerMessage | None:
    """Read a server's text frame; None for a type that a later version may have added.

    Raises:
        ClientFault: it is not a message of this protocol.
    """
    values = parse_object(text)
    cls = SERVER_TYPES.get(str(values.pop("type", None)))
    if cls is None:
        return None
    try:
        return schema.build(cls, values)[0]
    except schema.FieldError as error:
        raise ClientFault("invalid_field", str(error), field=error.field) from None


def encode(message: ClientMessage | ServerMessage) -> str:
    """Write a message as a text frame; optional fields without a value are left out."""
    record: dict[str, object] = {"type": _NAMES[type(message)]}
    for field in dataclasses.fields(message):
        value = getattr(message, field.name)
        if value is None and field.name != "language":
            continue
        if field.name == "words" and isinstance(value, list):
            value = [dataclasses.asdict(word) for word in value]
        record[field.name] = value
    return json.dumps(record, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def encode_start(start: Start) -> str:
    """Write only what differs from the defaults, so that older servers know all of it."""
    plain = Start()
    record: dict[str, object] = {"type": "start"}
    for field in dataclasses.fields(start):
        if (value := getattr(start, field.name)) != getattr(plain, field.name):
            record[field.name] = value
    return json.dumps(record, ensure_ascii=False, separators=(",", ":"))


# --- samples to seconds -----------------------------------------------------------------------


def from_event(event: events.Event, *, with_words: bool) -> ServerMessage:
    """Convert what a session says to its message, which has no number yet."""
    match event:
        case events.SpeechStarted(channel, segment, start, lag):
            return SpeechStarted(channel, segment, seconds(start), seconds(lag))
        case events.SpeechEnded(channel, segment, end, lag):
            return SpeechEnded(channel, segment, seconds(end), seconds(lag))
        case events.Partial():
            return Partial(
                channel=event.channel,
                segment=event.segment,
                settled=event.settled,
                volatile=event.volatile,
                start=seconds(event.start),
                end=seconds(event.end),
                language=event.language,
                lag=seconds(event.lag),
            )
        case events.Final():
            return Final(
                channel=event.channel,
                segment=event.segment,
                text=event.text,
                start=seconds(event.start),
                end=seconds(event.end),
                language=event.language,
                is_endpoint=event.is_endpoint,
                lag=seconds(event.lag),
                words=[_from_word(word) for word in event.words] if with_words else None,
                reason=event.reason,
            )


def _from_word(word: engine.api.Word) -> Word:
    return Word(word.text, seconds(word.start), seconds(word.end), round(word.probability, 3))
