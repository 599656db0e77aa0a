"""What is decoded again, what stands in front of it, and which of the two texts counts."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from engine.api import SAMPLE_RATE, Word
from streamer.transcription.buffer import AudioBuffer
from streamer.transcription.second_pass import (
    MAX_RECENT_AGE,
    MAX_RECENT_LENGTH,
    MAX_WORDS_PER_S,
    SECOND_PASS_MAX_LENGTH,
    RecentUtterances,
    SecondPass,
    SpokenContext,
)
from streamer.transcription.settings import SessionSettings
from streamer.transcription.utterance import Utterance
from tests.support.words import hypothesis, said


def buffer(seconds: int) -> AudioBuffer:
    """Sound whose every sample is its second."""
    filled = AudioBuffer()
    filled.append(np.repeat(np.arange(seconds, dtype=np.float32), SAMPLE_RATE))
    return filled


def add(recall: RecentUtterances, sound: AudioBuffer, start_s: int, end_s: int, text: str) -> None:
    recall.add(start_s * SAMPLE_RATE, end_s * SAMPLE_RATE, sound, said(text, start_s))


def test_turns_stand_one_behind_the_other_without_the_silence_between() -> None:
    recall, sound = RecentUtterances(), buffer(30)
    add(recall, sound, 2, 4, "one two")
    add(recall, sound, 10, 11, "three")
    context = recall.before(20 * SAMPLE_RATE)
    assert context is not None
    joined = context.join(sound, 21 * SAMPLE_RATE)
    assert list(joined[:: SAMPLE_RATE // 2]) == [2, 2, 3, 3, 10, 10, 20, 20]
    assert [(word.text, word.start / SAMPLE_RATE) for word in context.words] == [
        (" one", 17.0),
        (" two", 17.4),
        (" three", 19.0),
    ]


def test_the_oldest_turns_make_room() -> None:
    recall, sound = RecentUtterances(), buffer(60)
    seconds = MAX_RECENT_LENGTH // SAMPLE_RATE // 2
    for number in range(3):
        add(recall, sound, 10 * number, 10 * number + seconds, f"w{number}")
    context = recall.before(50 * SAMPLE_RATE)
    assert context is not None and [word.text for word in context.words] == [" w1", " w2"]
    assert len(context.audio) == MAX_RECENT_LENGTH


def test_behind_a_long_turn_there_is_nothing_to_recall() -> None:
    recall, sound = RecentUtterances(), buffer(60)
    add(recall, sound, 0, 2, "short")
    recall.add(3 * SAMPLE_RATE, 3 * SAMPLE_RATE + MAX_RECENT_LENGTH + 1, sound, said("long", 3))
    assert recall.before(50 * SAMPLE_RATE) is None


def test_what_is_not_held_any_more_is_not_recalled() -> None:
    recall, sound = RecentUtterances(), buffer(10)
    sound.drop_before(3 * SAMPLE_RATE)
    add(recall, sound, 2, 4, "one two")
    assert recall.before(6 * SAMPLE_RATE) is None


def test_noises_are_not_recalled() -> None:
    recall, sound = RecentUtterances(), buffer(10)
    add(recall, sound, 2, 4, "")
    assert recall.before(6 * SAMPLE_RATE) is None


def test_after_a_long_silence_all_is_forgotten() -> None:
    recall, sound = RecentUtterances(), buffer(10)
    add(recall, sound, 2, 4, "one two")
    recall.forget_if_old(4 * SAMPLE_RATE + MAX_RECENT_AGE)
    assert recall.before(9 * SAMPLE_RATE) is not None
    recall.forget_if_old(4 * SAMPLE_RATE + MAX_RECENT_AGE + 1)
    assert recall.before(9 * SAMPLE_RATE) is None


def second_pass(length_s: int = 2) -> SecondPass:
    """A second pass that could have so much audio as context."""
    recent = RecentUtterances()
    add(recent, buffer(10), 2, 2 + length_s, "all right")
    return SecondPass(recent)


def unsurely(text: str, start: int = 0, probability: float = 0.5) -> list[Word]:
    words = said(text, start / SAMPLE_RATE)
    return [dataclasses.replace(word, probability=probability) for word in words]


def unsure(text: str = "you two fight", start: int = 10 * SAMPLE_RATE) -> Utterance:
    """A short segment, heard once, up to 0.3 s into a pause."""
    segment = Utterance(1, start, SessionSettings())
    words = unsurely(text, start)
    found = hypothesis(words, words[-1].end + 4_800, start)
    segment.accept(found, is_pause=True, may_settle=True)
    return segment


def context_of(text: str, start: int) -> SpokenContext:
    """Words right in front of a later turn."""
    words = said(text)
    shift = start - words[-1].end
    words = [dataclasses.replace(w, start=w.start + shift, end=w.end + shift) for w in words]
    return SpokenContext(start, np.zeros(start - words[0].start, np.float32), words)


def decode_again(segment: Utterance, words: list[Word], **changes: object) -> str:
    """Return what the segment settles after such a second pass behind "all right"."""
    context = context_of("all right", segment.start)
    found = hypothesis([*context.words, *words], segment.end, segment.start - len(context.audio))
    found = dataclasses.replace(found, **changes)  # type: ignore[arg-type]
    second_pass().accept(found, context, segment)
    segment.complete(segment.end)
    return "".join(word.text for word in segment.transcript.settled)


def test_a_second_reading_with_what_was_said_before_wins() -> None:
    segment = unsure()
    assert decode_again(segment, unsurely("you too bye", segment.start)) == " you too bye"


@pytest.mark.parametrize(
    ("words", "changes"),
    [
        (unsurely("far less likely", 10 * SAMPLE_RATE, probability=0.3), {}),
        (unsurely("doubted", 10 * SAMPLE_RATE), {"avg_logprob": -2.0}),
        (unsurely("ach ja", 10 * SAMPLE_RATE), {"language": "de"}),
        ([], {}),
    ],
)
def test_the_first_reading_stays(words: list[Word], changes: dict[str, object]) -> None:
    assert decode_again(unsure(), words, **changes) == " you two fight"


def test_a_second_reading_faster_than_anyone_speaks_is_not_taken() -> None:
    segment = unsure()
    count = MAX_WORDS_PER_S * (segment.end - segment.start) // SAMPLE_RATE + 1
    length = (segment.end - segment.start) // count
    start = segment.start
    words = [
        Word(f" w{i}", start + i * length, start + (i + 1) * length, 0.9) for i in range(count)
    ]
    assert decode_again(segment, words) == " you two fight"


def test_what_was_said_before_is_not_said_again() -> None:
    """Even if it is read otherwise this time."""
    segment = unsure()
    context = context_of("can you learn", segment.start)
    again = context_of("can you for a second", segment.start).words
    found = hypothesis([*again, *unsurely("okay bye", segment.start)], segment.end)
    second_pass().accept(found, context, segment)
    segment.complete(segment.end)
    assert [word.text for word in segment.transcript.settled] == [" okay", " bye"]


def test_a_second_reading_counts_only_if_nothing_more_is_said() -> None:
    segment = unsure()
    context = context_of("all right", segment.start)
    found = hypothesis(unsurely("you too bye", segment.start), segment.end)
    second_pass().accept(found, context, segment)
    more = unsurely("you two fight often", segment.start)
    segment.accept(hypothesis(more, segment.end + SAMPLE_RATE), is_pause=True, may_settle=False)
    segment.complete(segment.end)
    assert [word.text for word in segment.transcript.settled] == [w.text for w in more]


def test_only_short_and_unlikely_words_before_a_pause_are_worth_a_second_pass() -> None:
    first, segment = second_pass(), unsure()
    words, limit = unsurely("one two"), SECOND_PASS_MAX_LENGTH
    first.consider(words, SAMPLE_RATE, is_pause=False)
    assert not first.is_worthwhile(segment)
    first.consider(words, limit, is_pause=True)
    assert first.is_worthwhile(segment)
    first.consider(words, limit + 1, is_pause=True)
    assert not first.is_worthwhile(segment)
    first.consider(said("one two"), limit, is_pause=True)
    assert not first.is_worthwhile(segment)
    first.consider([], limit, is_pause=True)
    assert not first.is_worthwhile(segment)


def test_an_utterance_gets_one_second_pass_and_none_after_a_cancel() -> None:
    first, segment = second_pass(), unsure()
    first.consider(segment.transcript.newest, segment.end - segment.start, is_pause=True)
    context = first.start(segment)
    assert [word.text for word in context.words] == [" all", " right"]
    assert not first.is_worthwhile(segment)
    first.consider(segment.transcript.newest, segment.end - segment.start, is_pause=True)
    first.cancel()
    assert not first.is_worthwhile(segment)


def test_a_second_pass_needs_twice_the_context_of_the_first() -> None:
    segment = unsure()
    words = segment.transcript.newest
    found = hypothesis(words, segment.end, segment.start - SAMPLE_RATE)
    segment.accept(found, is_pause=True, may_settle=False)
    for length_s, is_enough in ((1, False), (2, True)):
        first = second_pass(length_s)
        first.consider(words, segment.end - segment.start, is_pause=True)
        assert first.is_worthwhile(segment) is is_enough
