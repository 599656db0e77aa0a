"""Whatever stands in a message, its protocol names what is wrong: nothing ends in our error.

Each example has all fields of its message; every place in it is made hostile in turn.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from engine.api import ModelInfo
from streamer import protocol, schema, wire
from streamer.protocols.deepgram.session import read_channel, read_keyterms
from streamer.protocols.native.audio_input import AudioInput
from streamer.protocols.native.options import read_settings
from streamer.protocols.openai.body import parse_object
from streamer.protocols.openai.error import ApiError
from streamer.protocols.openai.realtime.options import RealtimeConfig
from streamer.protocols.openai.realtime.secret_route import read_lifetime
from streamer.protocols.twilio import messages as twilio
from streamer.protocols.twilio.options import read_format
from streamer.protocols.twilio.options import read_settings as read_parameters
from streamer.protocols.whisperlive.options import parse_hello
from streamer.protocols.wyoming import messages as wyoming
from streamer.wire import ClientFault
from tests.support.hostile_json import everywhere

INFO = ModelInfo("base", ("en", "de"), "cpu", "float32")
# of faults that are not about one field
CODES = {"invalid_json", "too_long"}

START = {
    "type": "start",
    "encoding": "mulaw",
    "sample_rate": 8000,
    "channels": 2,
    "language": "en",
    "task": "transcribe",
    "prompt": "p",
    "hotwords": ["h"],
    "words": True,
    "partials": True,
    "delay": "low",
    "endpointing": "speech",
    "silence_ms": 500,
    "pre_roll_ms": 300,
    "max_segment_s": 30.0,
    "vad_threshold": 0.5,
    "resumable": True,
}
SESSION = {
    "type": "transcription",
    "audio": {
        "input": {
            "format": {"type": "audio/pcm", "rate": 24_000},
            "noise_reduction": {"type": "near_field", "strength": 0.5},
            "transcription": {
                "model": "whisper-1",
                "language": "en",
                "languages": ["en"],
                "prompt": "p",
                "keywords": ["k"],
                "delay": "low",
            },
            "turn_detection": {
                "type": "server_vad",
                "threshold": 0.5,
                "prefix_padding_ms": 300,
                "silence_duration_ms": 500,
                "eagerness": "low",
                "create_response": None,
                "interrupt_response": None,
                "idle_timeout_ms": None,
            },
        }
    },
    "include": ["item.input_audio_transcription.logprobs"],
}
BETA = {
    "input_audio_format": "pcm16",
    "input_audio_transcription": {"model": "whisper-1", "language": "en", "prompt": "p"},
    "input_audio_noise_reduction": {"type": "near_field"},
    "turn_detection": {"type": "server_vad", "threshold": 0.5, "silence_duration_ms": 500},
    "include": ["item.input_audio_transcription.logprobs"],
    "audio": {"input": {"format": {"type": "audio/pcm"}}},  # both shapes at once
}
CALL = {
    "event": "start",
    "streamSid": "MZ1",
    "start": {
        "callSid": "CA1",
        "tracks": ["inbound", "outbound"],
        "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1},
        "customParameters": {
            "language": "en",
            "task": "transcribe",
            "prompt": "p",
            "hotwords": "a, b",
            "delay": "low",
            "silence_ms": "500",
        },
    },
}
MEDIA = {
    "event": "media",
    "streamSid": "MZ1",
    "media": {"track": "inbound", "chunk": "1", "timestamp": "20", "payload": "////"},
}
DTMF = {"event": "dtmf", "streamSid": "MZ1", "dtmf": {"track": "inbound", "digit": "1"}}
MARK = {"event": "mark", "streamSid": "MZ1", "mark": {"name": "m"}}
HELLO = {
    "uid": "u",
    "language": "en",
    "task": "transcribe",
    "model": "base",
    "send_last_n_segments": 5,
    "initial_prompt": "p",
    "word_timestamps": True,
    "audio_format": "int16",
    "enable_translation": False,
    "enable_diarization": False,
    "vad_parameters": {
        "threshold": 0.5,
        "min_silence_duration_ms": 500,
        "speech_pad_ms": 300,
    },
    "hotwords": ["h"],
}
WYOMING = {
    "transcribe": {
        "name": "base",
        "language": "en",
        "vad_sensitivity": "relaxed",
        "transcript_names": ["n"],
        "transcript_terms": ["t"],
    },
    "audio-start": {"rate": 16_000, "width": 2, "channels": 1, "timestamp": 0},
    "ping": {"text": "t"},
}


def native(text: str) -> object:
    message = protocol.parse_client(text).message
    if isinstance(message, protocol.Start):
        AudioInput(message.encoding, message.sample_rate, message.channels)
        read_settings(message)
        protocol.encode_start(message)
    return message


def realtime(text: str) -> object:
    config = RealtimeConfig(INFO).update(parse_object(text))
    config = config.update({"include": []})
    return [config.describe("s"), config.describe_old("s")]


def secret(text: str) -> object:
    return read_lifetime(parse_object(text).get("expires_after"), 60)


def deepgram(text: str) -> object:
    values = wire.parse_object(text)
    return [read_channel(values.get("channel"), 2), read_keyterms(values.get("keyterms"))]


def call(text: str) -> object:
    message = twilio.parse(text)
    if isinstance(message, twilio.Start):
        read_parameters(message)
        read_format(message)
    return str(message)


def whisperlive(text: str) -> object:
    hello = parse_hello(text)
    return [hello.uid, str(hello.settings), str(hello.format)]


def home_assistant(kind: str) -> Callable[[str], object]:
    def read(text: str) -> object:
        data = wire.parse_object(text)
        match kind:
            case "transcribe":
                return str(schema.build(wyoming.Transcribe, data)[0].settings)
            case "audio-start":
                return str(schema.build(wyoming.Audio, data)[0].format)
        return wyoming.encode(wyoming.WyomingEvent("pong", data)).decode()

    return read


CASES: list[tuple[str, Any, Callable[[str], object]]] = [
    ("stream start", START, native),
    ("stream update", {"type": "update", "language": "en", "prompt": "p"}, native),
    ("stream resume", {"type": "resume", "session": "s", "seq": 1}, native),
    ("realtime", SESSION, realtime),
    ("realtime beta", BETA, realtime),
    ("secret", {"expires_after": {"anchor": "created_at", "seconds": 60}}, secret),
    ("listen", {"type": "Finalize", "channel": 1, "keyterms": ["k"]}, deepgram),
    ("twilio start", CALL, call),
    ("twilio media", MEDIA, call),
    ("twilio dtmf", DTMF, call),
    ("twilio mark", MARK, call),
    ("whisperlive", HELLO, whisperlive),
    *((f"wyoming {kind}", data, home_assistant(kind)) for kind, data in WYOMING.items()),
]


@pytest.mark.parametrize(
    ("example", "read"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_no_value_anywhere_in_a_message_ends_in_our_error(
    example: Any, read: Callable[[str], object]
) -> None:
    read(json.dumps(example))
    num_refused = 0
    for text in everywhere(example):
        try:
            # what is taken can be sent back and passed on to the engine
            json.dumps(read(text), default=str, ensure_ascii=False, allow_nan=False).encode()
        except (ClientFault, schema.FieldError, schema.RangeError) as error:
            num_refused += 1
            assert error.field or isinstance(error, ClientFault) and error.code in CODES, text
            if isinstance(error, ApiError):
                json.dumps(error.fields, ensure_ascii=False, allow_nan=False).encode()
    assert num_refused > 3
