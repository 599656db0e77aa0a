"""The open segment: context, slides and cuts."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from engine.api import SAMPLE_RATE, Word
from streamer.transcription.buffer import AudioBuffer
from streamer.transcription.hallucination import LEFT_OVER
from streamer.transcription.second_pass import SpokenContext
from streamer.transcription.settings import Endpointing, SessionSettings
from streamer.transcription.utterance import (
    CONTEXT,
    CONTEXT_GAP,
    MAX_WORDS_PER_S,
    SECOND_PASS_MAX_LENGTH,
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
    following.follow(segment, buffer(10), CONTEXT)
    assert following.window_start == 0
    assert [word.text for word in following.transcript.anchors] == [" Short", " one."]
    assert following.transcript.settled == []


def test_context_begins_with_a_sentence_and_is_bounded() -> None:
    segment = heard(" ".join(["One two three four."] * 6))
    following = Utterance(1, segment.end + SAMPLE_RATE, SessionSettings())
    following.follow(segment, buffer(20), CONTEXT)
    assert 0 < following.start - following.window_start <= CONTEXT + SAMPLE_RATE
    assert following.transcript.anchors[0].text == " One"


def test_after_a_long_silence_there_is_no_context() -> None:
    segment = heard("Short one.")
    following = Utterance(1, segment.end + CONTEXT_GAP + 1, SessionSettings())
    following.follow(segment, buffer(10), CONTEXT)
    assert following.window_start == following.start
    assert following.transcript.anchors == []


def test_what_the_model_took_for_the_words_before_is_decoded_alone() -> None:
    segment = heard("Open the door now.")
    following = Utterance(1, segment.end + SAMPLE_RATE // 2, SessionSettings())
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
    near = Utterance(1, last + CONTEXT_GAP, SessionSettings())
    near.follow(segment, buffer(10), 0)
    assert last <= near.window_start < near.start and near.transcript.anchors == []
    far = Utterance(1, last + CONTEXT_GAP + 1, SessionSettings())
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


def said_unsurely(text: str, start: int = 0, probability: float = 0.5) -> list[Word]:
    words = said(text, start / SAMPLE_RATE)
    return [dataclasses.replace(word, probability=probability) for word in words]


def unsure(text: str = "you two fight", start: int = 10 * SAMPLE_RATE) -> Utterance:
    """A short segment, heard once, up to 0.3 s into a pause."""
    segment = Utterance(1, start, SessionSettings())
    words = said_unsurely(text, start)
    found = hypothesis(words, words[-1].end + 4_800, start)
    segment.hear(found, is_pause=True, may_settle=True)
    return segment


def context_of(text: str, start: int) -> SpokenContext:
    """Words right in front of a later turn."""
    words = said(text)
    shift = start - words[-1].end
    words = [dataclasses.replace(w, start=w.start + shift, end=w.end + shift) for w in words]
    return SpokenContext(start, np.zeros(start - words[0].start, np.float32), words)


def read_again(segment: Utterance, words: list[Word], **changes: object) -> str:
    """Return what the segment settles after such a second pass behind "all right"."""
    context = context_of("all right", segment.start)
    found = hypothesis([*context.words, *words], segment.end, segment.start - len(context.sound))
    segment.accept_second_pass(dataclasses.replace(found, **changes), context)  # type: ignore[arg-type]
    segment.go_on_behind(segment.end)
    return "".join(word.text for word in segment.transcript.settled)


def test_a_second_reading_with_what_was_said_before_wins() -> None:
    segment = unsure()
    assert segment.needs_second_pass
    assert read_again(segment, said_unsurely("you too bye", segment.start)) == " you too bye"


@pytest.mark.parametrize(
    ("words", "changes"),
    [
        (said_unsurely("far less likely", 10 * SAMPLE_RATE, probability=0.3), {}),
        (said_unsurely("doubted", 10 * SAMPLE_RATE), {"avg_logprob": -2.0}),
        (said_unsurely("ach ja", 10 * SAMPLE_RATE), {"language": "de"}),
        ([], {}),
    ],
)
def test_the_first_reading_stays(words: list[Word], changes: dict[str, object]) -> None:
    assert read_again(unsure(), words, **changes) == " you two fight"


def test_a_second_reading_faster_than_anyone_speaks_is_not_taken() -> None:
    segment = unsure()
    count = MAX_WORDS_PER_S * (segment.end - segment.start) // SAMPLE_RATE + 1
    length = (segment.end - segment.start) // count
    start = segment.start
    words = [
        Word(f" w{i}", start + i * length, start + (i + 1) * length, 0.9) for i in range(count)
    ]
    assert read_again(segment, words) == " you two fight"


def test_what_was_said_before_is_not_said_again() -> None:
    """Even if it is read otherwise this time."""
    segment = unsure()
    context = context_of("can you learn", segment.start)
    again = context_of("can you for a second", segment.start).words
    found = hypothesis([*again, *said_unsurely("okay bye", segment.start)], segment.end)
    segment.accept_second_pass(found, context)
    segment.go_on_behind(segment.end)
    assert [word.text for word in segment.transcript.settled] == [" okay", " bye"]


def test_a_second_reading_counts_only_if_nothing_more_is_said() -> None:
    segment = unsure()
    context = context_of("all right", segment.start)
    found = hypothesis(said_unsurely("you too bye", segment.start), segment.end)
    segment.accept_second_pass(found, context)
    more = said_unsurely("you two fight often", segment.start)
    segment.hear(hypothesis(more, segment.end + SAMPLE_RATE), is_pause=True, may_settle=False)
    segment.go_on_behind(segment.end)
    assert [word.text for word in segment.transcript.settled] == [w.text for w in more]


def test_only_short_and_unlikely_words_before_a_pause_are_worth_a_second_reading() -> None:
    segment = Utterance(0, 0, SessionSettings())
    words = said_unsurely("one two")
    segment.hear(hypothesis(words, SAMPLE_RATE), is_pause=False, may_settle=True)
    assert not segment.needs_second_pass
    segment.hear(hypothesis(words, SECOND_PASS_MAX_LENGTH), is_pause=True, may_settle=False)
    assert segment.needs_second_pass
    segment.hear(hypothesis(words, SECOND_PASS_MAX_LENGTH + 1), is_pause=True, may_settle=False)
    assert not segment.needs_second_pass
    segment.hear(
        hypothesis(said("one two"), SECOND_PASS_MAX_LENGTH), is_pause=True, may_settle=False
    )
    assert not segment.needs_second_pass
