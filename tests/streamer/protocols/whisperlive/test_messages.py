from __future__ import annotations

import json
from typing import Any

from engine.api import Word
from streamer.protocols.whisperlive.messages import SegmentsWriter
from streamer.protocols.whisperlive.options import Hello
from streamer.transcription import events

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
