"""Speech between long pauses and other sounds: each sentence is one Final, whole and in its place.

Sessions are played under a clock that the test moves, with the real speech detector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

from engine.api import SAMPLE_RATE, Samples, Word
from streamer.transcription.events import Final
from tests.support.player import Player, check, play
from tests.support.timeline import Timeline, timeline

TALK = timeline([4, 5, 3, 6], [1.4, 1.4, 1.4, 1.4])
PACKET = (8_000,)


def sentences(talk: Timeline) -> Iterator[tuple[Word, ...]]:
    words: list[Word] = []
    for word in talk.words:
        words.append(word)
        if word.text.endswith("."):
            yield tuple(words)
            words = []


def check_each_sentence(player: Player, talk: Timeline, reach: int = 8_000) -> None:
    """Each sentence is one Final that holds its words, and begins before it by `reach` at most."""
    check(player.events)
    assert player.text == talk.text
    spoken = list(sentences(talk))
    assert len(player.finals) == len(spoken)
    for final, words in zip(player.finals, spoken, strict=True):
        assert words[0].start - reach <= final.start <= words[0].start
        assert words[-1].end <= final.end


def delays(player: Player) -> list[float]:
    """Seconds from the end of each Final to its coming."""
    return [at - e.end / SAMPLE_RATE for at, e in player.told if isinstance(e, Final)]


def pauses(talk: Timeline) -> np.ndarray:
    """Return for each sample whether it lies between sentences."""
    is_pause = np.ones(len(talk.samples), bool)
    for words in sentences(talk):
        is_pause[words[0].start : words[-1].end] = False
    return is_pause


def noisy(talk: Timeline, levels_db: Sequence[float]) -> Timeline:
    """Add noise that goes from one of the levels to the next over the whole time."""
    at = np.linspace(0, len(talk.samples), len(levels_db))
    level = np.interp(np.arange(len(talk.samples)), at, [10 ** (v / 20) for v in levels_db])
    noise = level * np.random.default_rng(13).standard_normal(len(talk.samples))
    return Timeline(talk.words, talk.samples + noise.astype(np.float32))


def gated(talk: Timeline) -> Samples:
    """A noise gate makes every pause exactly zero."""
    return np.where(pauses(talk), np.float32(0), talk.samples)


def with_holes(talk: Timeline) -> Samples:
    """A line sends nothing for 20 of every 200 ms of a pause."""
    is_hole = np.arange(len(talk.samples)) % 3_200 < 320
    return np.where(pauses(talk) & is_hole, np.float32(0), talk.samples)


@pytest.mark.parametrize("disturb", [gated, with_holes])
def test_exact_zeros_in_pauses_change_nothing(disturb: Callable[[Timeline], Samples]) -> None:
    whole = play(TALK, PACKET)
    check_each_sentence(whole, TALK)
    player = play(Timeline(TALK.words, disturb(noisy(TALK, [-52.0]))), PACKET)
    assert [final.text for final in player.finals] == [final.text for final in whole.finals]
    for final, other in zip(player.finals, whole.finals, strict=True):
        assert abs(final.start - other.start) < 0.1 * SAMPLE_RATE


def test_speech_after_a_minute_of_zeros_is_whole() -> None:
    minute = 60 * SAMPLE_RATE
    words = tuple(Word(w.text, w.start + minute, w.end + minute, 0.9) for w in TALK.words)
    late = Timeline(words, np.concatenate([np.zeros(minute, np.float32), TALK.samples]))
    check_each_sentence(play(late, PACKET), late)


def dialled(talk: Timeline) -> Timeline:
    """Put twelve keys of a telephone half a second in front of the talk."""
    rows, columns = (697, 770, 852, 941), (1209, 1336, 1477)
    t = np.arange(1_600) / SAMPLE_RATE
    bursts = [np.zeros(SAMPLE_RATE)]
    for number in range(12):
        pair = rows[number // 3], columns[number % 3]
        burst = 0.14 * sum(np.sin(2 * np.pi * f * t) for f in pair)
        bursts += [burst, np.zeros(1_280)]
    tones = np.concatenate([*bursts, np.zeros(8_000)]).astype(np.float32)
    speech = talk.samples[talk.words[0].start :]
    shift = len(tones) - talk.words[0].start
    words = tuple(Word(w.text, w.start + shift, w.end + shift, 0.9) for w in talk.words)
    return Timeline(words, np.concatenate([tones, speech]))


def test_speech_behind_dialling_is_whole() -> None:
    talk = dialled(TALK)
    check_each_sentence(play(talk, PACKET), talk)


def test_sentences_far_apart_have_their_beginnings_their_places_and_the_same_delay() -> None:
    # loud enough a room for the detector to listen all the time
    talk = noisy(timeline([3, 3, 3], [45.0, 90.0, 2.0]), [-60.0])
    player = play(talk, PACKET)
    check_each_sentence(player, talk)
    assert max(delays(player)) - min(delays(player)) < 0.5


@pytest.mark.parametrize("is_noisy", [False, True])
def test_every_one_of_twenty_sentences_is_heard(is_noisy: bool) -> None:
    talk = timeline([2] * 20, [1.0, 3.0, 8.0, 15.0] * 5)
    if is_noisy:
        talk = noisy(talk, (-72.0, -58.0, -70.0, -54.0, -74.0, -62.0, -56.0, -72.0, -60.0))
    check_each_sentence(play(talk, PACKET), talk)
