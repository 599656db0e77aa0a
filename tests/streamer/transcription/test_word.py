"""Words: cut out of a text, compared, and put together again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api import Hypothesis, Segment, Word
from streamer.transcription.word import MIN_WORD_LENGTH, fit, follow, join, key, split, words_of
from tests.support.words import said


@pytest.mark.parametrize(
    ("a", "b"), [(" The", "the,"), (" don't", " Don’t"), ("Straße.", "STRASSE"), ("你好。", "你好")]
)
def test_case_and_punctuation_do_not_count(a: str, b: str) -> None:
    assert key(a) == key(b) != ""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (" Hello, world.", [" Hello,", " world."]),
        ("我们走。好", ["我", "们", "走。", "好"]),
        (" mixed 中文 text", [" mixed", " 中", "文", " text"]),
        ("", []),
    ],
)
def test_text_is_cut_into_words(text: str, words: list[str]) -> None:
    assert split(text) == words


@given(st.text())
def test_cut_words_join_to_the_text(text: str) -> None:
    assert "".join(split(text)) == text


def test_a_segment_without_word_times_shares_its_time() -> None:
    segment = Segment(" one three", 1000, 2000, False)
    words = words_of(Hypothesis(0, 16_000, (segment,), "en", 1.0))
    assert [word.text for word in words] == [" one", " three"]
    assert (words[0].start, words[-1].end) == (1000, 2000)
    assert words[0].end == words[1].start


def test_joining_puts_in_the_space_that_a_window_left_out() -> None:
    def words(*texts: str) -> list[Word]:
        return [Word(text, 0, 1, 1.0) for text in texts]

    assert join(words(" It", " ends.", "And", " on")) == "It ends. And on"
    assert join(words("今", "天", "走")) == "今天走"
    assert join(words(" well", "-known", "!")) == "well-known!"
    assert join([]) == ""


@given(
    st.lists(st.tuples(st.integers(-5000, 50_000), st.integers(0, 9000)), min_size=1, max_size=9)
)
def test_word_times_are_moved_into_their_segment(times: list[tuple[int, int]]) -> None:
    words = [Word(f" w{i}", a, a + length, 1.0) for i, (a, length) in enumerate(times)]
    fitted = fit(words, 1000, 40_000)
    assert [word.text for word in fitted] == [word.text for word in words]
    assert all(word.end - word.start >= MIN_WORD_LENGTH for word in fitted)
    assert all(a.end <= b.start for a, b in zip(fitted, fitted[1:], strict=False))
    assert fitted[0].start >= 1000 and fitted[-1].end <= 40_000


def test_word_times_that_fit_are_kept() -> None:
    words = said("the cat sat")
    assert list(fit(words, 0, words[-1].end)) == words


@pytest.mark.parametrize(
    ("before", "text", "added"),
    [
        ("", " Hello.", "Hello."),
        ("Hello.", "You there?", " You there?"),
        ("Hello. ", " You there?", " You there?"),
        ("Hello", ", you", ", you"),
        ("你好。", "世界", "世界"),
        ("Hello.", "", ""),
    ],
)
def test_pieces_put_together_read_as_one_text(before: str, text: str, added: str) -> None:
    assert follow(before, text) == added
