"""The open segment: context, slides and cuts."""

from __future__ import annotations

import numpy as np
from test_agreement import said

from engine.api import SAMPLE_RATE, Hypothesis, Segment, Word
from streamer.buffer import AudioBuffer
from streamer.judgement import LEFT_OVER
from streamer.open_segment import CONTEXT, CONTEXT_GAP, OpenSegment
from streamer.settings import Endpointing, SessionSettings


def buffer(seconds: int) -> AudioBuffer:
    filled = AudioBuffer()
    filled.append(np.full(seconds * SAMPLE_RATE, 0.1, np.float32))
    return filled


def hypothesis(words: list[Word], end: int, start: int = 0) -> Hypothesis:
    text = "".join(word.text for word in words)
    segments = (Segment(text, words[0].start, words[-1].end, False, tuple(words)),)
    return Hypothesis(start, end, segments, "en", 1.0, avg_logprob=-0.2)


def heard(text: str, settings: SessionSettings | None = None) -> OpenSegment:
    """A segment in which two windows heard this text."""
    segment = OpenSegment(0, 0, settings or SessionSettings())
    words = said(text)
    for _ in range(2):
        segment.hear(hypothesis(words, words[-1].end + SAMPLE_RATE), is_pause=True, may_settle=True)
    return segment


def test_the_next_segment_begins_with_the_words_before() -> None:
    segment = heard("Short one.")
    following = OpenSegment(1, segment.end + SAMPLE_RATE, SessionSettings())
    following.follow(segment, buffer(10), CONTEXT)
    assert following.window_start == 0
    assert [word.text for word in following.transcript.anchors] == [" Short", " one."]
    assert following.transcript.settled == []


def test_context_begins_with_a_sentence_and_is_bounded() -> None:
    segment = heard(" ".join(["One two three four."] * 6))
    following = OpenSegment(1, segment.end + SAMPLE_RATE, SessionSettings())
    following.follow(segment, buffer(20), CONTEXT)
    assert 0 < following.start - following.window_start <= CONTEXT + SAMPLE_RATE
    assert following.transcript.anchors[0].text == " One"


def test_after_a_long_silence_there_is_no_context() -> None:
    segment = heard("Short one.")
    following = OpenSegment(1, segment.end + CONTEXT_GAP + 1, SessionSettings())
    following.follow(segment, buffer(10), CONTEXT)
    assert following.window_start == following.start
    assert following.transcript.anchors == []


def test_what_the_model_took_for_the_words_before_is_decoded_alone() -> None:
    segment = heard("Open the door now.")
    following = OpenSegment(1, segment.end + SAMPLE_RATE // 2, SessionSettings())
    following.follow(segment, buffer(20), CONTEXT)
    end = following.start + LEFT_OVER
    following.hear(
        hypothesis(said("Open the door now."), end), is_pause=True, may_settle=False
    )  # once, though it was said again
    assert following.go_on_behind(end)
    assert following.window_start == following.start and following.transcript.anchors == []
    assert not following.has_heard(end)


def test_a_soft_word_behind_the_last_one_is_heard_even_without_context() -> None:
    segment = heard("Short one.")
    last = segment.transcript.settled[-1].end
    near = OpenSegment(1, last + CONTEXT_GAP, SessionSettings())
    near.follow(segment, buffer(10), 0)
    assert last <= near.window_start < near.start and near.transcript.anchors == []
    far = OpenSegment(1, last + CONTEXT_GAP + 1, SessionSettings())
    far.follow(segment, buffer(10), 0)
    assert far.window_start == far.start


def test_a_long_window_slides_to_a_sentence_end_and_keeps_context() -> None:
    segment = heard(" ".join(["One two three four."] * 7))
    segment.slide(segment.end, buffer(20), CONTEXT)
    assert 0 < segment.window_start
    assert segment.end - segment.window_start <= CONTEXT
    assert segment.transcript.anchors[0].text == " One"


def test_a_short_window_stays() -> None:
    segment = heard("One two. Three four.")
    segment.slide(segment.end, buffer(10), CONTEXT)
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


def test_what_was_shown_is_not_shown_again() -> None:
    segment = heard("One two.")
    assert segment.heard is not None
    hypothesis = segment.heard.hypothesis
    partial = segment.partial(hypothesis, channel=1, language="en", lag=5)
    assert partial is not None
    assert (partial.settled, partial.volatile) == ("One two.", "")
    assert (partial.channel, partial.language, partial.lag) == (1, "en", 5)
    assert (partial.start, partial.end) == (segment.start, hypothesis.end)
    assert segment.partial(hypothesis, channel=1, language="en", lag=9) is None
