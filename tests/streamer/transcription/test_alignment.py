"""Words of successive hypotheses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api import Word
from streamer.transcription.alignment import behind, num_agreed, num_covered, uncovered
from tests.support.words import said


def test_agreement_ends_at_the_first_difference() -> None:
    assert num_agreed(said("the cat sat"), said("The cat, sits there")) == 2
    assert num_agreed([], said("a")) == 0


@pytest.mark.parametrize(
    ("settled", "words", "rest"),
    [
        ("", "one two", "one two"),
        ("one two", "one two three", "three"),
        ("one two", "One, two. Three", "Three"),
        ("one two three", "one too three four", "four"),
        ("one two three four", "one two three", ""),
    ],
)
def test_settled_words_are_not_said_again(settled: str, words: str, rest: str) -> None:
    hypothesis = said(words)
    assert (
        hypothesis[num_covered(said(settled), hypothesis) :]
        == said(words)[-len(rest.split()) :][: len(rest.split())]
    )


def test_a_small_word_that_was_left_out_is_covered_too() -> None:
    def word(text: str, start_s: float, end_s: float) -> Word:
        return Word(text, int(start_s * 16_000), int(end_s * 16_000), 0.9)

    settled = [word(" close", 4.84, 5.58), word(" window", 5.58, 6.08)]
    again = [word(" Close", 4.84, 5.58), word(" the", 5.58, 5.76), word(" window.", 5.76, 6.22)]
    assert num_covered(settled, [*again, word(" Open", 7.46, 7.78)]) == 3


def test_a_word_read_as_two_is_still_covered() -> None:
    settled = said("every body knows that")
    words = said("everybody", 0.0, 0.8) + said("knows that we", 0.8)
    assert num_covered(settled, words) == 3


@pytest.mark.parametrize(
    ("settled", "number", "rest"),
    [
        ("9 4 8", " 9482199351", " 2199351"),
        ("9 4 8", " 9,482", " 2"),
        ("9 4 8", " 948.", None),
        ("948", " 948219", " 219"),
        ("9 4 8", " 917", " 917"),
        ("two", " twofold", " twofold"),
    ],
)
def test_a_number_is_cut_behind_its_settled_digits(
    settled: str, number: str, rest: str | None
) -> None:
    """Digits come one by one, and as a number in the next hypothesis."""
    words = [Word(number, 0, 64_000, 0.9), *said("and so on", 4.0)]
    tail = uncovered(said(settled), words)
    assert [word.text for word in tail] == ([rest] if rest else []) + [" and", " so", " on"]
    assert all(word.start < word.end for word in tail)


def test_repeated_words_are_told_apart_by_time() -> None:
    settled = said("no no")
    assert num_covered(settled, said("no no no no")) == 2


def test_another_text_is_cut_by_time() -> None:
    settled = said("alpha beta gamma delta")
    assert num_covered(settled, said("quite other things are here said")) == 4


def test_a_window_whose_first_words_are_unheard_keeps_the_rest() -> None:
    settled = said("one two three four")
    assert num_covered(settled, said("three four five six", 0.8)) == 2


@given(st.lists(st.sampled_from("a b c d".split()), max_size=30), st.data())
def test_a_prefix_is_always_covered(texts: list[str], data: st.DataObject) -> None:
    words = said(" ".join(texts))
    count = data.draw(st.integers(0, len(words)))
    assert num_covered(words[:count], words) == count


def test_the_first_words_that_end_before_a_position_are_left_out() -> None:
    words = said("one two three")
    assert behind(words[0].end, words) == words[1:]
    assert behind(words[0].end - 1, words) == words
    assert behind(words[2].end, words) == []
