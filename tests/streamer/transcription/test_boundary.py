"""Where a window may begin."""

from __future__ import annotations

import numpy as np

from engine.api import Word
from streamer.transcription.boundary import (
    NUM_OVERLAP_WORDS,
    best_boundary,
    first_boundary,
    quietest,
)
from streamer.transcription.buffer import AudioBuffer
from tests.support.words import said


def test_the_first_sentence_end_behind_a_place_is_best() -> None:
    words = said("It is. So it is. And then. Well")
    for position, num_words in ((0, 2), (16_000, 5), (40_000, 7), (90_000, 7)):
        boundary = best_boundary(words, [], position, is_sentence_wanted=True)
        assert boundary is not None
        assert boundary.num_words == num_words
        assert boundary.start < num_words * 6400 < boundary.end


def test_a_sentence_that_may_not_be_over_is_no_edge() -> None:
    """Nothing follows its full stop, so that may only be the end of the window."""
    assert best_boundary(said("It is."), [], 0, is_sentence_wanted=False) is None


def test_a_pause_is_as_good_as_a_full_stop() -> None:
    words = said("one two") + said("three four", 1.3)
    boundary = best_boundary(words, [], 0, is_sentence_wanted=True)
    assert boundary is not None and boundary.num_words == 2
    assert first_boundary(words, 0) == boundary


def test_within_a_sentence_no_edge_is_taken_unless_the_window_is_long() -> None:
    words = said("one two three four five six")
    assert best_boundary(words, [], 0, is_sentence_wanted=True) is None
    boundary = best_boundary(words, [], 0, is_sentence_wanted=False)
    assert boundary is not None
    assert boundary.num_words <= len(words) - NUM_OVERLAP_WORDS


def test_the_widest_gap_is_taken() -> None:
    words = said("one two three") + said("four five six seven", 1.5)
    boundary = best_boundary(words, [], 0, is_sentence_wanted=False)
    assert boundary is not None
    assert boundary.num_words == 3


def test_without_settled_words_there_is_no_edge() -> None:
    assert best_boundary([], said("one. two"), 0, is_sentence_wanted=False) is None
    assert first_boundary([], 0) is None


def test_overlapping_word_times_still_give_a_place() -> None:
    words = [Word(" a.", 0, 9000, 1.0), Word(" b", 8000, 12_000, 1.0)]
    boundary = best_boundary(words, [], 0, is_sentence_wanted=True)
    assert boundary is not None and boundary.start < 8000 < 9000 < boundary.end


def test_the_quietest_point_is_found_and_clamped() -> None:
    buffer = AudioBuffer()
    samples = np.full(16_000, 0.1, np.float32)
    samples[9_000:9_600] = 0.0
    buffer.append(samples)
    assert 9_000 <= quietest(buffer, 4_000, 14_000) <= 9_600
    assert 9_000 <= quietest(buffer, -500, 99_000) <= 9_600
    assert quietest(buffer, 100, 150) == 125
