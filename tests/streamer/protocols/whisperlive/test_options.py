from __future__ import annotations

import json
from typing import Any

import pytest

from engine.api import Task
from streamer.audio.pcm import AudioFormat
from streamer.protocols.whisperlive.options import Hello, parse_hello
from streamer.wire import ClientFault

FULL = {
    "uid": "u1",
    "language": "de",
    "task": "translate",
    "model": "small",
    "use_vad": True,
    "send_last_n_segments": 3,
    "no_speech_thresh": 0.45,
    "clip_audio": False,
    "same_output_threshold": 10,
    "enable_translation": False,
    "target_language": "fr",
    "hotwords": "Wordwire, Tarif",
    "enable_diarization": False,
    "max_speakers": 10,
    "known_speakers": [],
    "word_timestamps": True,
    "initial_prompt": "A talk.",
    "vad_parameters": {"threshold": 0.6, "min_silence_duration_ms": 50},
    "audio_format": "int16",
}


def test_everything_that_the_client_sends_is_understood() -> None:
    hello = parse_hello(json.dumps(FULL))
    assert hello.format == AudioFormat("pcm_s16le", 16_000, 1)
    settings = hello.settings
    assert settings.language == "de"
    assert settings.task is Task.TRANSLATE
    assert settings.hotwords == ("Wordwire", "Tarif")
    assert settings.prompt == "A talk."
    assert settings.word_times
    assert settings.vad_threshold == 0.6
    assert settings.silence_ms == 100
    assert hello.warnings == []


@pytest.mark.parametrize("left_out", [*FULL, None])
def test_any_field_may_be_missing_or_null(left_out: str | None) -> None:
    without = {name: value for name, value in FULL.items() if name != left_out}
    parse_hello(json.dumps(without)).settings  # noqa: B018
    nulled = {**FULL, left_out: None} if left_out else {}
    hello = parse_hello(json.dumps(nulled))
    assert hello.send_last_n_segments in (3, 10)
    assert hello.settings is not None


def test_an_empty_hello_has_the_clients_defaults() -> None:
    hello = parse_hello("{}")
    assert hello == Hello()
    assert hello.format == AudioFormat("pcm_f32le", 16_000, 1)
    assert hello.settings.language is None


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"language": 5}, "language"),
        ({"task": "sing"}, "task"),
        ({"audio_format": "mp3"}, "audio_format"),
        ({"send_last_n_segments": "10"}, "send_last_n_segments"),
        ({"word_timestamps": "yes"}, "word_timestamps"),
        ({"vad_parameters": [1]}, "vad_parameters"),
        ({"hotwords": 7}, "hotwords"),
    ],
)
def test_a_wrong_type_is_named(values: dict[str, Any], named: str) -> None:
    with pytest.raises(ClientFault) as caught:
        parse_hello(json.dumps(values))
    assert named in caught.value.message


def test_what_is_not_served_is_said() -> None:
    hello = parse_hello('{"enable_translation":true,"enable_diarization":true}')
    assert len(hello.warnings) == 2
