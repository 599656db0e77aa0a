"""The messages of Twilio Media Streams, and of its near clones, read into dataclasses.

Twilio writes numbers as strings; Telnyx and others write names in snake_case. Both are taken.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass

from streamer import schema
from streamer.wire import ClientFault, parse_object

TRACKS = ("inbound", "outbound")
# what carriers call the two encodings of telephony
ENCODINGS: Mapping[str, str] = {
    "audio/x-mulaw": "mulaw",
    "audio/mulaw": "mulaw",
    "PCMU": "mulaw",
    "audio/x-alaw": "alaw",
    "audio/alaw": "alaw",
    "PCMA": "alaw",
}
MAX_ID_LENGTH = 256  # characters


@dataclass(frozen=True, slots=True)
class Connected:
    """The socket is open; which call it is comes with Start."""


@dataclass(frozen=True, slots=True)
class Start:
    call: str
    stream: str
    tracks: tuple[str, ...]  # each a channel, in this order
    encoding: str  # of streamer.audio.pcm.AudioFormat
    sample_rate: int  # Hz
    parameters: Mapping[str, str]  # what the TwiML gave to this stream


@dataclass(frozen=True, slots=True)
class Media:
    track: str
    chunk: int | None  # counts up from 1 in a track; None where the sender does not number
    timestamp_ms: int | None  # from the start of the stream
    payload: bytes


@dataclass(frozen=True, slots=True)
class Dtmf:
    track: str
    digit: str


@dataclass(frozen=True, slots=True)
class Mark:
    """Playback reached a mark. Nothing is played here, so nothing waits for it."""

    name: str


@dataclass(frozen=True, slots=True)
class Stop:
    """The last message of a stream."""


Message = Connected | Start | Media | Dtmf | Mark | Stop


def parse(text: str) -> Message:
    """Read a text frame.

    Raises:
        ClientFault: no JSON object, an unknown event, or a field that does not read.
    """
    values = parse_object(text)
    match values.get("event"):
        case "connected":
            return Connected()
        case "start":
            return _start(values)
        case "media":
            return _media(_object(values, "media"))
        case "dtmf":
            body = _object(values, "dtmf")
            return Dtmf(_track(body.get("track")), str(body.get("digit", ""))[:8])
        case "mark":
            return Mark(str(_object(values, "mark").get("name", ""))[:MAX_ID_LENGTH])
        case "stop":
            return Stop()
        case other:
            raise ClientFault(
                "unknown_event",
                "event: expected connected, start, media, dtmf, mark or stop, "
                f"got {schema.quote(other)}",
                field="event",
            )


def _start(values: Mapping[str, object]) -> Start:
    body = _object(values, "start")
    stream = _text(values, "streamSid", "stream_id", "stream_sid") or _text(
        body, "streamSid", "stream_id", "stream_sid"
    )
    call = _text(body, "callSid", "call_sid", "call_control_id") or stream
    if not call:
        raise ClientFault(
            "missing_field",
            "start.callSid: expected a string, got nothing",
            field="start.callSid",
        )
    tracks = body.get("tracks")
    if not isinstance(tracks, list) or not tracks:
        tracks = ["inbound"]
    # the order of TRACKS, so that a channel means the same in every call
    named = {_track(track) for track in tracks}
    media_format = body.get("mediaFormat", body.get("media_format"))
    if not isinstance(media_format, dict):
        media_format = {}
    encoding = str(media_format.get("encoding") or "audio/x-mulaw")
    if encoding not in ENCODINGS:
        raise ClientFault(
            "unsupported",
            f"start.mediaFormat.encoding: expected one of {', '.join(ENCODINGS)}, "
            f"got {schema.quote(encoding)}",
            field="start.mediaFormat.encoding",
        )
    rate = _number(media_format, "sampleRate", "sample_rate")
    parameters = body.get("customParameters", body.get("custom_parameters"))
    if not isinstance(parameters, dict):
        parameters = {}
    return Start(
        call=call,
        stream=stream,
        tracks=tuple(track for track in TRACKS if track in named),
        encoding=ENCODINGS[encoding],
        sample_rate=8000 if rate is None else rate,
        parameters={str(name): str(value) for name, value in parameters.items()},
    )


def _media(body: Mapping[str, object]) -> Media:
    payload = body.get("payload")
    if not isinstance(payload, str):
        raise ClientFault(
            "missing_field", "media.payload: expected base64, got nothing", field="media.payload"
        )
    try:
        data = base64.b64decode(payload, validate=True)
    except (binascii.Error, ValueError):
        raise ClientFault(
            "invalid_field",
            f"media.payload: expected base64, got {schema.quote(payload)}",
            field="media.payload",
        ) from None
    return Media(
        track=_track(body.get("track")),
        chunk=_number(body, "chunk"),
        timestamp_ms=_number(body, "timestamp"),
        payload=data,
    )


def _track(value: object) -> str:
    if value is None:
        return "inbound"
    name = str(value).removesuffix("_track")
    if name not in TRACKS:
        raise ClientFault(
            "invalid_field",
            f"track: expected inbound or outbound, got {schema.quote(value)}",
            field="track",
        )
    return name


def _object(values: Mapping[str, object], name: str) -> Mapping[str, object]:
    value = values.get(name)
    if not isinstance(value, dict):
        raise ClientFault(
            "missing_field", f"{name}: expected an object, got {schema.quote(value)}", field=name
        )
    return value


def _text(values: Mapping[str, object], *names: str) -> str:
    for name in names:
        value = values.get(name)
        if isinstance(value, str) and value:
            if len(value) > MAX_ID_LENGTH:
                raise ClientFault(
                    "invalid_field",
                    f"{name}: expected at most {MAX_ID_LENGTH} characters",
                    field=name,
                )
            return value
    return ""


def _number(values: Mapping[str, object], *names: str) -> int | None:
    for name in names:
        value = values.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
        # 18 digits are more than any count or time in milliseconds
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 18:
            return int(value)
        if value is not None:
            raise ClientFault(
                "invalid_field",
                f"{name}: expected a number, got {schema.quote(value)}",
                field=name,
            )
    return None
