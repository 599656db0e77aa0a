from __future__ import annotations

import json
from typing import Any

import pytest

from engine.api import Task, Word
from streamer.audio.pcm import AudioFormat
from streamer.protocols.whisperlive.messages import Hello, SegmentsWriter, parse_hello
from streamer.transcription import events
from streamer.wire import ClientFault

S = 16_000


def partial(text: str, start: float, end: float) -> events.Partial:
    return events.Partial(0, 0, text, "", round(start * S), round(end * S), "en", 0)


def final(text: str, start: float, end: float, words: tuple[Word, ...] = ()) -> events.Final:
    return events.Final(
        0,
        0,
        text,
        round(start * S),
        round(end * S),
        "en",
        0.87,
        words,
        -0.1,
        0.0,
        True,
        None,
        0,
    )


def shown(texts: list[str]) -> list[Any]:
    return [json.loads(text) for text in texts]


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


def test_the_open_segment_comes_after_the_completed_ones() -> None:
    w = SegmentsWriter(Hello(uid="u1"))
    language, update = shown(w.translate(partial(" Hel", 0.3, 1.0)))
    assert language == {"uid": "u1", "language": "en", "language_prob": 1.0}
    assert update == {
        "uid": "u1",
        "segments": [{"start": "0.300", "end": "1.000", "text": "Hel", "completed": False}],
    }
    seen, completed = shown(w.translate(final(" Hello.", 0.3, 1.5)))
    assert [s["completed"] for s in seen["segments"]] == [False]
    assert seen["segments"][0]["text"] == "Hello.", "seen open before it is completed"
    assert completed["segments"] == [
        {"start": "0.300", "end": "1.500", "text": "Hello.", "completed": True}
    ]
    (update,) = shown(w.translate(partial(" You", 1.2, 2.0)))
    assert [s["text"] for s in update["segments"]] == ["Hello.", " You"]
    assert update["segments"][1]["start"] == "1.500", "clients drop what starts before the last end"


def test_a_final_that_was_shown_already_is_not_shown_again() -> None:
    w = SegmentsWriter(Hello())
    w.translate(partial(" Hello.", 0.0, 1.0))
    (completed,) = shown(w.translate(final(" Hello.", 0.0, 1.0)))
    assert completed["segments"][0]["completed"] is True


def test_only_the_last_segments_are_repeated() -> None:
    w = SegmentsWriter(Hello(send_last_n_segments=2))
    for number in range(5):
        last = shown(w.translate(final(f" {number}", number, number + 1)))[-1]
    assert [s["text"] for s in last["segments"]] == [" 3", " 4"]


def test_no_segment_is_empty_or_overlaps() -> None:
    w = SegmentsWriter(Hello())
    assert w.translate(final("", 0.0, 1.0)) == []
    assert w.translate(partial(" ", 0.0, 1.0)) == []
    w.translate(final(" a", 0.0, 2.0))
    last = shown(w.translate(final(" b", 1.0, 1.5)))[-1]["segments"]
    assert float(last[0]["end"]) <= float(last[1]["start"]) < float(last[1]["end"])


def test_words_come_where_asked_for() -> None:
    w = SegmentsWriter(Hello(word_timestamps=True))
    words = (Word(" Hi", 0, S // 2, 0.98765),)
    last = shown(w.translate(final(" Hi", 0.0, 1.0, words)))[-1]["segments"]
    assert last[0]["words"] == [
        {"word": " Hi", "start": "0.000", "end": "0.500", "probability": 0.988}
    ]
