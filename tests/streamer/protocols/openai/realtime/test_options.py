from __future__ import annotations

from typing import Any

import pytest

from engine.api import ModelInfo
from streamer.audio.pcm import AudioFormat
from streamer.protocols.openai.error import ApiError
from streamer.protocols.openai.realtime.options import LOGPROBS, RealtimeConfig
from streamer.transcription.settings import Delay, Endpointing

INFO = ModelInfo("base", ("en", "de"), "cpu", "float32")


def config(**source: Any) -> RealtimeConfig:
    return RealtimeConfig(INFO).update({"type": "transcription", "audio": {"input": source}})


def test_the_default_is_24_khz_with_speech_detection() -> None:
    default = RealtimeConfig(INFO)
    assert default.audio_format == AudioFormat("pcm_s16le", 24_000, 1)
    assert not default.is_manual and not default.is_live and not default.has_logprobs
    assert default.settings.silence_ms == 500 and default.settings.pre_roll_ms == 300


def test_every_setting_reaches_the_session() -> None:
    made = config(
        format={"type": "audio/pcma"},
        transcription={
            "model": "gpt-live-transcribe",
            "language": "de",
            "prompt": "Namen",
            "keywords": ["Zürich"],
            "delay": "high",
        },
        turn_detection={
            "type": "server_vad",
            "threshold": 0.7,
            "prefix_padding_ms": 200,
            "silence_duration_ms": 900,
        },
    )
    assert made.audio_format == AudioFormat("alaw", 8_000, 1)
    settings = made.settings
    assert (settings.language, settings.prompt, settings.hotwords) == ("de", "Namen", ("Zürich",))
    assert (settings.delay, settings.partials) == (Delay.HIGH, True)
    assert (settings.vad_threshold, settings.pre_roll_ms, settings.silence_ms) == (0.7, 200, 900)


def test_null_turns_detection_off_and_an_object_on_again() -> None:
    manual = config(turn_detection=None)
    assert manual.is_manual and manual.settings.endpointing is Endpointing.MANUAL
    same = manual.update({"audio": {"input": {"transcription": {"language": "en"}}}})
    assert same.is_manual
    again = same.update({"audio": {"input": {"turn_detection": {"type": "server_vad"}}}})
    assert not again.is_manual and again.settings.silence_ms == 500


def test_eagerness_is_the_length_of_a_pause() -> None:
    low, high = (
        config(turn_detection={"type": "semantic_vad", "eagerness": name}).settings.silence_ms
        for name in ("low", "high")
    )
    assert low > high


def test_the_old_shape_means_the_same() -> None:
    old = RealtimeConfig(INFO).update(
        {
            "input_audio_format": "g711_ulaw",
            "input_audio_transcription": {"model": "whisper-1", "language": "en"},
            "input_audio_noise_reduction": {"type": "near_field"},
            "turn_detection": None,
            "include": [LOGPROBS],
        }
    )
    assert old.audio_format == AudioFormat("mulaw", 8_000, 1)
    assert old.is_manual and old.has_logprobs and old.settings.word_times
    assert old.describe("s")["audio"]["input"]["noise_reduction"] == {"type": "near_field"}
    flat = old.describe_old("s")
    assert flat["input_audio_format"] == "g711_ulaw" and flat["turn_detection"] is None
    assert flat["input_audio_transcription"]["language"] == "en"


def test_fields_without_a_meaning_are_not_repeated() -> None:
    source = config(colour="blue", turn_detection={"type": "server_vad", "x": [0] * 1000})
    described = source.describe("s")["audio"]["input"]
    assert "colour" not in described and "x" not in described["turn_detection"]


def test_what_is_described_makes_the_same_session() -> None:
    made = config(transcription={"model": "base", "language": "de"}, turn_detection=None)
    again = RealtimeConfig(INFO).update(made.describe("s"))
    assert again.describe("s") == made.describe("s")


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"type": "realtime"}, "session.type"),
        ({"audio": []}, "session.audio.input"),
        ({"audio": {"input": 5}}, "session.audio.input"),
        ({"include": "all"}, "session.include"),
        (
            {"audio": {"input": {"turn_detection": {"type": "server_vad", "idle_timeout_ms": 1}}}},
            "session.audio.input.turn_detection.idle_timeout_ms",
        ),
        ({"input_audio_format": "mp3"}, "session.audio.input.format.type"),
        ({"input_audio_format": 5}, "session.audio.input.format"),
    ],
)
def test_what_cannot_be_used_is_named(changes: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as caught:
        RealtimeConfig(INFO).update(changes)
    assert caught.value.field == param
