"""The language of a stream."""

from __future__ import annotations

from streamer.transcription.language_vote import LanguageVote

SECOND = 16_000


def test_half_a_second_decides_nothing() -> None:
    vote = LanguageVote()
    vote.count("nn", 0.9, SECOND // 2)
    assert vote.language is None


def test_enough_in_one_language_decides() -> None:
    vote = LanguageVote()
    vote.count("nn", 0.4, SECOND // 2)
    for length in (1, 2, 3):
        vote.count("de", 0.95, length * SECOND)
    assert vote.language == "de"


def test_what_is_decided_stays() -> None:
    vote = LanguageVote()
    vote.count("de", 1.0, 4 * SECOND)
    vote.count("en", 1.0, 60 * SECOND)
    assert vote.language == "de"


def test_two_languages_in_turn_decide_nothing() -> None:
    vote = LanguageVote()
    for _ in range(5):
        vote.count("en", 0.6, 2 * SECOND)
        vote.count("zh", 0.6, 2 * SECOND)
    assert vote.language is None
