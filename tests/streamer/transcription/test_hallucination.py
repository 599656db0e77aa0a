"""What is withheld, and why."""

from __future__ import annotations

import dataclasses

import pytest

from engine.api import Hypothesis, Segment, Word
from streamer.transcription.hallucination import (
    cut_loop,
    cut_timeless,
    filter_hypothesis,
    has_loop,
    reject_reason,
)
from tests.support.words import said

GOOD = Hypothesis(0, 16_000, (), "en", 1.0, avg_logprob=-0.3, no_speech_probability=0.1)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"no_speech_probability": 0.9}, None),
        ({"avg_logprob": -1.2}, None),
        ({"no_speech_probability": 0.9, "avg_logprob": -1.2}, "no_speech"),
        ({"avg_logprob": -1.6}, "low_probability"),
        ({"no_speech_probability": 0.5, "avg_logprob": -1.2}, "low_probability"),
        ({"no_speech_probability": 0.5, "avg_logprob": -1.0}, None),
        ({"no_speech_probability": 0.5, "avg_logprob": -1.2, "tokens": tuple(range(11))}, None),
    ],
)
def test_signals_count_together(changes: dict[str, float], reason: str | None) -> None:
    assert reject_reason(dataclasses.replace(GOOD, **changes)) == reason


def test_a_loop_shows_in_the_compression_and_at_the_token_limit() -> None:
    assert not has_loop(GOOD)
    assert has_loop(dataclasses.replace(GOOD, compression_ratio=3.0))
    assert has_loop(dataclasses.replace(GOOD, is_truncated=True))


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("we saw the sea", "we saw the sea"),
        ("well no no no", "well no no no"),
        ("it ends so so so so so so so", "it ends so"),
        ("then I saw I saw I saw. I saw and", "then I saw"),
    ],
)
def test_a_loop_is_cut_behind_its_first_turn(text: str, kept: str) -> None:
    assert cut_loop(said(text)) == said(text)[: len(kept.split())]


def test_what_is_taken_for_speech_ends_with_a_loop_and_is_nothing_where_there_is_doubt() -> None:
    words = tuple(said("it ends so so so so so so so"))
    text = "".join(word.text for word in words)
    segment = Segment(text, words[0].start, words[-1].end, False, words)
    hypothesis = dataclasses.replace(GOOD, segments=(segment,))
    heard = filter_hypothesis(hypothesis)
    assert (heard.words, heard.reason, heard.has_loop) == (list(words), None, False)
    heard = filter_hypothesis(dataclasses.replace(hypothesis, is_truncated=True))
    assert (heard.words, heard.reason, heard.has_loop) == (list(words[:3]), None, True)
    heard = filter_hypothesis(dataclasses.replace(hypothesis, avg_logprob=-1.6))
    assert (heard.words, heard.reason, heard.has_loop) == ([], "low_probability", False)


@pytest.mark.parametrize(("num_timeless", "num_kept"), [(0, 4), (2, 6), (3, 4), (8, 4)])
def test_words_that_take_no_time_were_not_said(num_timeless: int, num_kept: int) -> None:
    spoken = said("turn back on the")
    end = spoken[-1].end
    words = [*spoken, *(Word(f" w{i}", end, end + 320, 0.9) for i in range(num_timeless))]
    assert cut_timeless(words) == words[:num_kept]


def test_only_words_with_times_of_their_own_can_be_timeless() -> None:
    segment = Segment(" two or three words", 16_000, 16_000, False)
    assert len(filter_hypothesis(dataclasses.replace(GOOD, segments=(segment,))).words) == 4
    words = tuple(Word(text, 16_000, 16_000, 0.9) for text in (" two", " or", " three", " words"))
    segment = dataclasses.replace(segment, words=words)
    assert filter_hypothesis(dataclasses.replace(GOOD, segments=(segment,))).words == []
