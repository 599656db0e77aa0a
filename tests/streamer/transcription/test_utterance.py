"""The open utterance: context, slides and cuts."""

from __future__ import annotations

import numpy as np

from engine.api import SAMPLE_RATE
from streamer.transcription.buffer import AudioBuffer
from streamer.transcription.hallucination import MIN_REST_LENGTH
from streamer.transcription.settings import Endpointing, SessionSettings
from streamer.transcription.utterance import (
    CONTEXT_LENGTH,
    MAX_CONTEXT_GAP,
    Utterance,
)
from tests.support.words import heard, hypothesis, said


def buffer(seconds: int) -> AudioBuffer:
    filled = AudioBuffer()
    filled.append(np.full(seconds * SAMPLE_RATE, 0.1, np.float32))
    return filled


def test_the_next_segment_begins_with_the_words_before() -> None:
    segment = heard("Short one.")
    following = Utterance(1, segment.end + SAMPLE_RATE, SessionSettings())
    following.follow(segment, buffer(10), CONTEXT_LENGTH)
    assert following.window_start == 0
    assert [word.text for word in following.transcript.anchors] == [" Short", " one."]
    assert following.transcript.settled == []


def test_context_begins_with_a_sentence_and_is_bounded() -> None:
    segment = heard(" ".join(["One two three four."] * 6))
    following = Utterance(1, segment.end + SAMPLE_RATE, SessionSettings())
    following.follow(segment, buffer(20), CONTEXT_LENGTH)
    assert 0 < following.start - following.window_start <= CONTEXT_LENGTH + SAMPLE_RATE
    assert following.transcript.anchors[0].text == " One"


def test_after_a_long_silence_there_is_no_context() -> None:
    segment = heard("Short one.")
    following = Utterance(1, segment.end + MAX_CONTEXT_GAP + 1, SessionSettings())
    following.follow(segment, buffer(10), CONTEXT_LENGTH)
    assert following.window_start == following.start
    assert following.transcript.anchors == []


def test_what_the_model_took_for_the_words_before_is_decoded_alone() -> None:
    segment = heard("Open the door now.")
    following = Utterance(1, segment.end + SAMPLE_RATE // 2, SessionSettings())
    following.follow(segment, buffer(20), CONTEXT_LENGTH)
    end = following.start + MIN_REST_LENGTH
    following.accept(
        hypothesis(said("Open the door now."), end), is_pause=True, may_settle=False
    )  # once, though it was said again
    assert following.complete(end)
    assert following.window_start == following.start and following.transcript.anchors == []
    assert not following.has_decoded(end)


def test_a_soft_word_behind_the_last_one_is_heard_even_without_context() -> None:
    segment = heard("Short one.")
    last = segment.transcript.settled[-1].end
    near = Utterance(1, last + MAX_CONTEXT_GAP, SessionSettings())
    near.follow(segment, buffer(10), 0)
    assert last <= near.window_start < near.start and near.transcript.anchors == []
    far = Utterance(1, last + MAX_CONTEXT_GAP + 1, SessionSettings())
    far.follow(segment, buffer(10), 0)
    assert far.window_start == far.start


def test_a_long_window_slides_to_a_sentence_end_and_keeps_context() -> None:
    segment = heard(" ".join(["One two three four."] * 7))
    segment.slide(segment.end, buffer(20), CONTEXT_LENGTH)
    assert 0 < segment.window_start
    assert segment.end - segment.window_start <= CONTEXT_LENGTH
    assert segment.transcript.anchors[0].text == " One"


def test_a_short_window_stays() -> None:
    segment = heard("One two. Three four.")
    segment.slide(segment.end, buffer(10), CONTEXT_LENGTH)
    assert segment.window_start == 0


def test_a_segment_is_cut_behind_what_is_settled_and_at_a_sentence_end_if_it_can_wait() -> None:
    settings = SessionSettings(max_segment_s=10.0)
    unfinished = heard(" ".join(["one"] * 18), settings)
    assert unfinished.cut(unfinished.end, buffer(20)) is None
    finished = heard(" ".join(["one"] * 17) + " two.", settings)
    rest = finished.cut(finished.end, buffer(20))
    assert rest is not None
    assert (rest.number, rest.start >= finished.transcript.settled[-1].end) == (1, True)
    late = heard(" ".join(["one"] * 24), settings)
    assert late.cut(late.end, buffer(20)) is not None


def test_a_manual_segment_is_never_cut() -> None:
    settings = SessionSettings(max_segment_s=2.0, endpointing=Endpointing.MANUAL)
    segment = heard("one two three four five six seven.", settings)
    assert segment.cut(segment.end, buffer(10)) is None


def test_settled_and_volatile_text_are_shown_apart() -> None:
    assert heard("One two.").shown_text() == ("One two.", "")
    unsettled = Utterance(0, 0, SessionSettings())
    found = hypothesis(said("One two."), 4 * SAMPLE_RATE)
    unsettled.accept(found, is_pause=True, may_settle=True)
    assert unsettled.shown_text() == ("", "One two.")


def test_final_words_lie_inside_the_utterance() -> None:
    segment = heard("One two.")
    end = segment.transcript.settled[-1].end - 100
    words = segment.final_words(end)
    assert [word.text for word in words] == [" One", " two."]
    assert words[-1].end == end


def test_moving_on_slides_and_cuts() -> None:
    settings = SessionSettings(max_segment_s=10.0)
    segment = heard(" ".join(["one"] * 17) + " two.", settings)
    rest = segment.move_on(segment.end, buffer(20), CONTEXT_LENGTH)
    assert rest is not None and rest.number == 1
    short = heard("One two.")
    assert short.move_on(short.end, buffer(20), CONTEXT_LENGTH) is None
