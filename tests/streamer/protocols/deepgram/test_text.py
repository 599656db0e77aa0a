from __future__ import annotations

import pytest

from engine.api import Word
from streamer.protocols.deepgram.text import (
    confidence_of,
    join_pieces,
    spread,
    strip_punctuation,
    write_alternative,
)

WORDS = (
    Word(" Hello,", 0, 8000, 0.9),
    Word(" semi", 8000, 12000, 0.8),
    Word("-final.", 12000, 16000, 0.6),
)


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        (" And so, my fellow Americans: ask not!", "and so my fellow americans ask not"),
        ("It's 3.5% - isn't it?", "it's 3.5% isn't it"),
        ("こんにちは、世界。", "こんにちは 世界"),
        ("¿Qué?", "qué"),
        ("...", ""),
    ],
)
def test_bare_text_has_no_case_and_no_punctuation(text: str, bare: str) -> None:
    assert strip_punctuation(text) == bare


def test_punctuated_words_stand_beside_bare_ones() -> None:
    written = write_alternative(
        " Hello, semi-final.", WORDS, 0.75, "en", punctuate=True, names_language=False
    )
    assert written.transcript == "Hello, semi-final."
    assert [(w.word, w.punctuated_word) for w in written.words] == [
        ("hello", "Hello,"),
        ("semi-final", "semi-final."),
    ]
    assert [(w.start, w.end) for w in written.words] == [(0.0, 0.5), (0.5, 1.0)]
    assert written.languages is None


def test_without_punctuate_there_is_no_punctuated_word() -> None:
    written = write_alternative(
        " Hello, semi-final.", WORDS, 0.75, "en", punctuate=False, names_language=True
    )
    assert written.transcript == "hello semi-final"
    assert [w.punctuated_word for w in written.words] == [None, None]
    assert written.languages == ["en"]


def test_pieces_stay_apart_where_no_spaces_are_written() -> None:
    words = [Word("今日", 0, 10, 1.0), Word("は", 10, 20, 1.0)]
    assert join_pieces(words, "ja") == words
    assert [w.text for w in join_pieces(WORDS, "en")] == [" Hello,", " semi-final."]


def test_no_text_has_no_words_and_no_confidence() -> None:
    written = write_alternative("  ", (), 0.9, "en", punctuate=True, names_language=True)
    assert (written.transcript, written.confidence, written.words) == ("", 0.0, [])


def test_spread_words_cover_the_span_in_order() -> None:
    words = spread(" a longer word here", 1000, 9000)
    assert words[0].start == 1000
    assert words[-1].end == 9000
    for before, after in zip(words, words[1:], strict=False):
        assert before.start < before.end == after.start
    assert spread("", 0, 100) == []


def test_confidence_is_a_probability() -> None:
    assert confidence_of(WORDS, -5.0) == pytest.approx((0.9 + 0.8 + 0.6) / 3)
    assert confidence_of((), 0.5) == 1.0
    assert 0 < confidence_of((), -1.0) < 1
