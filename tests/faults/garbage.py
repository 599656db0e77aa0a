"""Messages that no client should send: random ones, and good ones with something changed."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from streamer.messages import CLIENT_TYPES
from streamer.protocols.whisperlive.options import Hello
from tests.support import hostile_json, twilio
from tests.support.audio import babble, pcm16

Message = str | bytes


@dataclass(frozen=True, slots=True)
class Sent:
    """A message, shown short."""

    data: Message

    def __repr__(self) -> str:
        shown = repr(self.data[:80])
        return shown if len(self.data) <= 80 else f"{shown}... ({len(self.data)})"


SOUND = pcm16(babble(0.5))
MULAW = base64.b64encode(bytes(range(256)) * 2).decode()

NATIVE: list[Any] = [
    {"type": "start", "language": "en", "sample_rate": 16000, "channels": 1, "words": True},
    {"type": "start", "encoding": "mulaw", "sample_rate": 8000, "hotwords": ["a", "b"]},
    {"type": "start", "encoding": "pcm_f32le", "channels": 2, "resumable": True},
    {"type": "resume", "session": "nobody", "seq": 3},
    {"type": "update", "language": "de", "prompt": "x", "hotwords": ["y"]},
    {"type": "finalize"},
    {"type": "end"},
]
DEEPGRAM: list[Any] = [
    {"type": "KeepAlive"},
    {"type": "Finalize", "channel": 0},
    {"type": "Configure", "keyterms": ["a"]},
    {"type": "CloseStream"},
]
REALTIME: list[Any] = [
    {
        "type": "session.update",
        "session": {
            "type": "transcription",
            "audio": {
                "input": {
                    "format": {"type": "audio/pcm", "rate": 24000},
                    "transcription": {"model": "whisper-1", "language": "en", "prompt": "p"},
                    "turn_detection": {"type": "server_vad", "silence_duration_ms": 500},
                    "noise_reduction": None,
                }
            },
        },
    },
    {
        "type": "transcription_session.update",
        "session": {"input_audio_format": "pcm16", "turn_detection": None},
    },
    {
        "type": "session.update",
        "session": {
            "type": "transcription",
            "input_audio_format": "pcm16",
            "input_audio_transcription": {"model": "whisper-1", "languages": ["en"]},
            "audio": {
                "input": {
                    "transcription": {"model": "whisper-1", "keywords": ["k"], "delay": "low"},
                    "turn_detection": {
                        "type": "semantic_vad",
                        "threshold": 0.5,
                        "prefix_padding_ms": 300,
                        "eagerness": "low",
                        "idle_timeout_ms": None,
                    },
                    "noise_reduction": {"type": "near_field", "strength": 0.5},
                }
            },
            "include": ["item.input_audio_transcription.logprobs"],
        },
    },
    {"type": "session.update", "model": "counting"},
    {"type": "input_audio_buffer.append", "audio": base64.b64encode(SOUND).decode()},
    {"type": "input_audio_buffer.commit"},
    {"type": "input_audio_buffer.commit", "final": True},
    {"type": "input_audio_buffer.clear"},
    {"type": "response.create", "event_id": "e1"},
]
TWILIO: list[Any] = [
    json.loads(twilio.CONNECTED),
    json.loads(twilio.start(language="en")),
    {
        "event": "media",
        "sequenceNumber": "2",
        "streamSid": "MZ1",
        "media": {"track": "inbound", "chunk": "1", "timestamp": "20", "payload": MULAW},
    },
    {
        "event": "start",
        "streamSid": "MZ2",
        "start": {
            "callSid": "CA2",
            "tracks": ["inbound", "outbound"],
            "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1},
            "customParameters": {"language": "en", "silence_ms": "500", "hotwords": "a,b"},
        },
    },
    {"event": "dtmf", "streamSid": "MZ1", "dtmf": {"track": "inbound_track", "digit": "1"}},
    {"event": "mark", "streamSid": "MZ1", "mark": {"name": "m"}},
    {"event": "stop", "sequenceNumber": "3", "streamSid": "MZ1", "stop": {"callSid": "CA1"}},
]
WHISPERLIVE: list[Any] = [
    {"uid": "u", "language": "en", "task": "transcribe", "model": "base", "use_vad": True},
    {"uid": "u", "language": None, "task": "translate", "audio_format": "int16", "hotwords": "a"},
]

# messages made from their schemas
NATIVE_SHAPES = [hostile_json.objects(cls, type=name) for name, cls in CLIENT_TYPES.items()]
WHISPERLIVE_SHAPES = [hostile_json.objects(Hello)]

# what users have sent, and what parsers choke on
KNOWN: list[Message] = [
    "qwerty",
    "{",
    "[]",
    "null",
    '"x"',
    '{"type":5}',
    '{"type":"nope"}',
    "[" * 100,
    '{"a":' * 100_000,
    "x" * 2**20,
    '{"type":"start","type":"end"}',
    '{"type":"start","sample_rate":NaN}',
    '{"type":"start","sample_rate":1e999}',
    '{"type":"start","sample_rate":' + "9" * 5000 + "}",
    '{"type":"\\ud800"}',
    '{"type":"\\\\ud83d\\ude00"}',
    '{"type":"start","vad_threshold":' + "9" * 401 + "}",
    '{"type":"update","prompt":"\\ude00\\ud83d"}',
    *('{"type":"start","unknown":' + "[" * n + "]" * n + "}" for n in (970, 973, 976, 2000)),
    "\x00",
    "",
    b"",
    b"END_OF_AUDIO",
    b"RIFF\xff\xff\xff\xffWAVEfmt ",
    b"\x1aE\xdf\xa3" + bytes(500),
    b"OggS" + bytes(500),
    b"ID3" + bytes(500),
    bytes(1),
    bytes(3),
    np.full(300, np.nan, np.float32).tobytes(),
    np.full(300, np.inf, np.float32).tobytes(),
]

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["en", "xx", "auto", "", "base64==", "16000", "true"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)


@st.composite
def mutated(draw: st.DrawFn, seeds: list[Any]) -> str:
    """Take a good message, and change, drop or add one thing in it; or cut the text."""
    message = json.loads(json.dumps(draw(st.sampled_from(seeds))))
    target = message
    while isinstance(target, dict) and target:
        name = draw(st.sampled_from(sorted(target)))
        if isinstance(target[name], dict) and target[name] and draw(st.booleans()):
            target = target[name]
            continue
        match draw(st.sampled_from(["keep", "keep", "replace", "drop", "add"])):
            case "replace":
                target[name] = draw(values)
            case "drop":
                del target[name]
            case "add":
                target[draw(st.text(max_size=8))] = draw(values)
        break
    text = json.dumps(message)
    return text[: draw(st.integers(0, len(text)))] if draw(st.integers(0, 9)) == 0 else text


def messages(
    seeds: list[Any], shapes: Sequence[st.SearchStrategy[Any]] = ()
) -> st.SearchStrategy[list[Sent]]:
    """Make what one client sends.

    Args:
        seeds: good messages.
        shapes: made from the schemas of the messages, where they have some.
    """
    hostile = hostile_json.spoiled(st.one_of(st.sampled_from(seeds), *shapes))
    one = st.one_of(
        hostile,
        hostile,
        mutated(seeds),
        mutated(seeds),
        mutated(seeds),
        st.integers(0, len(KNOWN) - 1).map(lambda index: KNOWN[index]),
        st.text(max_size=200),
        st.builds(json.dumps, values),
        st.binary(max_size=3000),
        st.just(SOUND),
    )
    return st.lists(one.map(Sent), min_size=5, max_size=60)
