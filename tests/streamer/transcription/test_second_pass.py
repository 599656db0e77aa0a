"""What was said before, as context for a second pass."""

from __future__ import annotations

import numpy as np

from engine.api import SAMPLE_RATE
from streamer.transcription.buffer import AudioBuffer
from streamer.transcription.second_pass import MAX_AGE, MAX_RECALL, RecentUtterances
from tests.support.words import said


def buffer(seconds: int) -> AudioBuffer:
    """Audio whose every sample is its second."""
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
    seconds = MAX_RECALL // SAMPLE_RATE // 2
    for number in range(3):
        add(recall, sound, 10 * number, 10 * number + seconds, f"w{number}")
    context = recall.before(50 * SAMPLE_RATE)
    assert context is not None and [word.text for word in context.words] == [" w1", " w2"]
    assert len(context.sound) == MAX_RECALL


def test_behind_a_long_turn_there_is_nothing_to_recall() -> None:
    recall, sound = RecentUtterances(), buffer(60)
    add(recall, sound, 0, 2, "short")
    recall.add(3 * SAMPLE_RATE, 3 * SAMPLE_RATE + MAX_RECALL + 1, sound, said("long", 3))
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
    recall.forget_if_old(4 * SAMPLE_RATE + MAX_AGE)
    assert recall.before(9 * SAMPLE_RATE) is not None
    recall.forget_if_old(4 * SAMPLE_RATE + MAX_AGE + 1)
    assert recall.before(9 * SAMPLE_RATE) is None
