"""What settles, and when."""

from __future__ import annotations

import dataclasses

from streamer.transcription.settings import Delay
from streamer.transcription.stability import COMMIT_POLICIES, CommitPolicy, Transcript
from streamer.transcription.word import join
from tests.support.words import said

SECOND = 16_000
PLAIN = CommitPolicy(2, 3, 0)


def settled(transcript: Transcript) -> str:
    return join(transcript.settled)


def agree(transcript: Transcript, text: str, *, is_pause: bool = False) -> None:
    words = said(text)
    transcript.agree(words, words[-1].end, is_pause=is_pause, may_settle=True)


def test_one_hypothesis_settles_nothing() -> None:
    transcript = Transcript(0, PLAIN)
    agree(transcript, "the cat sat")
    assert settled(transcript) == ""
    assert join(transcript.volatile) == "the cat sat"


def test_what_two_share_settles_but_not_the_last_word() -> None:
    transcript = Transcript(0, PLAIN)
    agree(transcript, "the cat")
    agree(transcript, "The cat sat")
    assert settled(transcript) == "The cat"
    agree(transcript, "the cat sat")
    assert settled(transcript) == "The cat"


def test_in_a_pause_the_last_word_settles_too() -> None:
    transcript = Transcript(0, PLAIN)
    agree(transcript, "the cat sat")
    agree(transcript, "the cat sat.", is_pause=True)
    assert settled(transcript) == "the cat sat."


def test_words_near_the_windows_end_wait() -> None:
    transcript = Transcript(0, CommitPolicy(2, 3, SECOND))
    agree(transcript, "a b c d e")
    agree(transcript, "a b c d e")
    assert settled(transcript) == "a b"


def test_more_patience_wants_more_hypotheses() -> None:
    transcript = Transcript(0, CommitPolicy(3, 3, 0))
    for text in ("a b x", "a b c", "a b c d"):
        assert settled(transcript) == ""
        agree(transcript, text)
    assert settled(transcript) == "a b"


def test_settled_words_never_change() -> None:
    transcript = Transcript(0, PLAIN)
    agree(transcript, "the cat sat on")
    agree(transcript, "the cat sat on the")
    agree(transcript, "a hat sat on the mat")
    transcript.complete()
    assert settled(transcript) == "the cat sat on the mat"


def test_a_preview_settles_nothing() -> None:
    transcript = Transcript(0, PLAIN)
    agree(transcript, "the cat")
    transcript.preview(said("the cat sat there"), 2 * SECOND)
    transcript.preview(said("the cat sat there"), 2 * SECOND)
    assert settled(transcript) == ""
    transcript.complete()
    assert settled(transcript) == "the cat"


def test_a_slide_leaves_words_out_of_the_window() -> None:
    transcript = Transcript(0, PLAIN)
    agree(transcript, "one two three four")
    agree(transcript, "one two three four five")
    transcript.slide(2)
    assert [word.text for word in transcript.anchors] == [" three", " four"]
    words = said("one two three four five six")[2:]
    transcript.agree(words, words[-1].end, is_pause=True, may_settle=True)
    assert settled(transcript) == "one two three four five"


def test_a_cut_keeps_what_is_settled_and_the_next_segment_goes_on() -> None:
    transcript = Transcript(0, PLAIN)
    agree(transcript, "one two three four")
    agree(transcript, "one two three four five")
    transcript.slide(2)
    rest = transcript.cut(12_345)
    assert settled(transcript) == "one two three four"
    assert rest.start == 12_345
    assert [word.text for word in rest.anchors] == [" three", " four"]
    words = said("one two three four five six")[2:]
    rest.agree(words, words[-1].end, is_pause=True, may_settle=True)
    rest.complete()
    assert settled(rest) == "five six"


def test_words_that_the_model_is_unsure_of_wait_longer() -> None:
    transcript = Transcript(0, PLAIN)
    words = said("the cat sat there")
    words[1] = dataclasses.replace(words[1], probability=0.3)
    for expected in ("", "the", "the cat sat"):
        transcript.agree(words, words[-1].end, is_pause=False, may_settle=True)
        assert settled(transcript) == expected


def test_a_change_of_language_starts_agreement_anew() -> None:
    transcript = Transcript(0, PLAIN)
    agree(transcript, "die katze sitzt")
    transcript.forget_disagreement()
    agree(transcript, "die katze sitzt da")
    assert settled(transcript) == ""


def test_every_delay_has_its_patience() -> None:
    policy = [COMMIT_POLICIES[delay] for delay in Delay]
    margins = [p.margin for p in policy]
    assert margins == sorted(margins)


def test_a_word_at_the_windows_end_is_not_shown_yet() -> None:
    transcript = Transcript(0, PLAIN)
    transcript.preview(said("the cat sa"), said("the cat sa")[-1].end)
    assert join(transcript.stable) == "the cat"
    transcript.preview(said("the cat sat"), said("the cat sat")[-1].end + SECOND)
    assert join(transcript.stable) == "the cat sat"


def test_an_unlikely_word_is_shown_once_it_is_heard_again() -> None:
    transcript = Transcript(0, PLAIN)
    words = said("the bat sat")
    words[1] = dataclasses.replace(words[1], probability=0.1)
    transcript.preview(words, words[-1].end + SECOND)
    assert join(transcript.stable) == "the"
    transcript.preview(words, words[-1].end + SECOND)
    assert join(transcript.stable) == "the bat sat"


def test_in_a_pause_all_words_are_shown() -> None:
    transcript = Transcript(0, PLAIN)
    agree(transcript, "the cat sat", is_pause=True)
    assert join(transcript.stable) == "the cat sat"


def test_most_of_what_is_shown_is_not_taken_away_at_once() -> None:
    transcript = Transcript(0, PLAIN)
    words = said("the cat sat on the mat today")
    transcript.preview(words, words[-1].end + SECOND)
    assert join(transcript.stable) == "the cat sat on the mat today"
    other = [dataclasses.replace(w, probability=0.3) for w in said("a hat sat on the mat today")]
    transcript.preview(other, other[-1].end + SECOND)
    assert join(transcript.stable) == "the cat sat on the mat today"
    transcript.preview(other, other[-1].end + SECOND)  # heard again
    assert join(transcript.stable) == "a hat sat on the mat today"
    transcript.preview(other[:4], other[-1].end + SECOND)
    assert join(transcript.stable) == "a hat sat on"
    agree(transcript, "a hat sat")
    agree(transcript, "a hat sat", is_pause=True)
    transcript.complete()
    assert (settled(transcript), transcript.stable) == ("a hat sat", [])


def test_what_the_segment_before_said_is_not_said_again_in_other_words() -> None:
    context, words = said("can you learn"), said("can you for a second okay")
    transcript = Transcript(5 * SECOND, PLAIN, context, floor=words[4].end)
    transcript.agree(words, 3 * SECOND, is_pause=True, may_settle=False)
    assert join(transcript.newest) == "okay"
    transcript.preview(words, 3 * SECOND)
    assert join(transcript.volatile) == "okay"


def test_a_second_reading_takes_the_place_of_what_is_not_settled() -> None:
    transcript = Transcript(0, PLAIN)
    agree(transcript, "you two fight")
    agree(transcript, "you two bite")
    transcript.revise(said("too bye"))
    transcript.complete()
    assert settled(transcript) == "you two too bye"
    assert transcript.volatile == [] == transcript.newest
