"""One channel on which a short utterance is decoded again, behind what was said before."""

from __future__ import annotations

import dataclasses
from collections import deque

import numpy as np
import pytest

from engine.api import SAMPLE_RATE, Hypothesis, Window
from streamer.transcription.events import Event, Final
from streamer.transcription.settings import SessionSettings
from streamer.transcription.transcriber import Transcriber
from tests.support.player import Player, check
from tests.support.timeline import Recogniser, timeline

CALL = timeline([6, 3], [6.0, 1.5])  # a turn, a long silence, a short turn


class Unsure(Recogniser):
    """Is sure of no word."""

    def decode(self, window: Window) -> Hypothesis:
        found = super().decode(window)
        if not found.segments:
            return found
        words = [dataclasses.replace(w, probability=0.5) for w in found.segments[0].words]
        segment = dataclasses.replace(found.segments[0], words=tuple(words))
        return dataclasses.replace(found, segments=(segment,))


class ContextReader(Recogniser):
    """Misreads what is said after a long silence, unless the turn before stands in front of it."""

    def decode(self, window: Window) -> Hypothesis:
        found = super().decode(window)
        later = [word for word in self.words if word.start > 5 * SAMPLE_RATE]
        if not found.segments or window.end < later[0].end:
            return found
        has_context = later[0].start - window.start > SAMPLE_RATE
        words = [
            dataclasses.replace(
                word, text=word.text + ("" if has_context else "x"), probability=0.5
            )
            for word in found.segments[0].words
        ]
        text = "".join(word.text for word in words)
        segment = dataclasses.replace(found.segments[0], text=text, words=tuple(words))
        return dataclasses.replace(found, segments=(segment,))


def test_a_short_turn_after_a_long_silence_is_read_again_with_what_was_said_before() -> None:
    player = Player(ContextReader(CALL.words), SessionSettings())
    player.play(CALL.samples, [1600])
    player.end()
    check(player.events)
    assert player.text == CALL.text
    first, second = player.finals
    again = player.recogniser.windows[-1]
    assert again.is_final and again.end == second.end
    turn, before = second.end - second.start, first.end - first.start
    assert len(again.audio) == turn + before  # no silence between
    assert np.array_equal(again.audio[:before], CALL.samples[first.start : first.end])
    # in time: the second reading is over before the silence is long enough
    final_at = [at for at, event in player.told if isinstance(event, Final)][-1]
    assert final_at - CALL.words[-1].end / SAMPLE_RATE < 1.0


def test_a_second_reading_settles_once_where_a_pause_ends_before_the_segment_does() -> None:
    player = Player(ContextReader(CALL.words), SessionSettings(silence_ms=1_500))
    player.play(CALL.samples, [1600])
    player.end()
    check(player.events)
    assert player.text == CALL.text


def test_where_windows_take_long_nothing_is_read_again() -> None:
    player = Player(ContextReader(CALL.words), SessionSettings(), cost_s=0.6)
    player.play(CALL.samples, [1600])
    player.end()
    assert "x" in player.finals[-1].text


def test_a_text_that_could_go_out_does_not_wait_long_for_a_second_reading() -> None:
    events: deque[Event] = deque()
    transcriber, recogniser = Transcriber(SessionSettings(), events), ContextReader(CALL.words)
    in_flight, at = None, None
    for position in range(0, len(CALL.samples), 1600):
        now = (position + 1600) / SAMPLE_RATE
        transcriber.receive_audio(CALL.samples[position : position + 1600], now)
        while in_flight is None and (in_flight := transcriber.next_window(now)) is not None:
            is_second = in_flight.is_final and in_flight.end - in_flight.start > 3 * SAMPLE_RATE
            if not (is_second and in_flight.end > 8 * SAMPLE_RATE):  # that one never comes back
                transcriber.receive_hypothesis(recogniser.decode(in_flight), now)
                in_flight = None
        if (at := transcriber.preempt_at) is not None:
            break
    assert in_flight is not None and at is not None
    assert at - CALL.words[-1].end / SAMPLE_RATE < 1.3
    assert not transcriber.preempt(at - 0.01) and transcriber.preempt(at)
    assert transcriber.next_window(at) is None
    finals = [event for event in events if isinstance(event, Final)]
    assert finals[-1].text == "W6x w7x w8.x"  # as it was read first


def test_what_is_to_be_forgotten_is_not_recalled() -> None:
    player = Player(ContextReader(CALL.words), SessionSettings())
    middle = CALL.words[5].end + SAMPLE_RATE // 5  # its text is not final yet
    player.play(CALL.samples[:middle], [1600])
    player.transcriber.forget()
    player.play(CALL.samples[middle:], [1600])
    player.end()
    later = [window for window in player.recogniser.windows if window.end > 6 * SAMPLE_RATE]
    assert later and all(len(window.audio) < 2.5 * SAMPLE_RATE for window in later)
    assert "x" in player.finals[-1].text


def test_a_second_reading_that_was_lost_leaves_the_first() -> None:
    events: deque[Event] = deque()
    transcriber, recogniser = Transcriber(SessionSettings(), events), ContextReader(CALL.words)
    transcriber.receive_audio(CALL.samples, 0.0)
    transcriber.end()
    num_lost = 0
    while (window := transcriber.next_window(0.0)) is not None:
        if len(window.audio) > 3 * SAMPLE_RATE and window.end > 8 * SAMPLE_RATE:
            num_lost += 1
            transcriber.window_failed()
        else:
            transcriber.receive_hypothesis(recogniser.decode(window), 0.0)
    finals = [event for event in events if isinstance(event, Final)]
    assert num_lost == 1 and transcriber.is_finished
    assert finals[-1].text == "W6x w7x w8.x"


@pytest.mark.parametrize("size", [160, 1600, 16_000, 160_000])
def test_packets_do_not_change_what_is_read_again(size: int) -> None:
    player = Player(ContextReader(CALL.words), SessionSettings())
    player.play(CALL.samples, [size])
    player.end()
    assert player.text == CALL.text


def test_a_turn_that_had_enough_context_is_not_read_again() -> None:
    near = timeline([6, 3], [1.2, 1.5])  # close enough for the turn before to be in its window
    player = Player(Unsure(near.words), SessionSettings())
    player.play(near.samples, [1600])
    player.end()
    assert player.text == near.text
    lengths = [len(window.audio) for window in player.recogniser.windows]
    starts = {window.start for window in player.recogniser.windows}
    assert len(starts) == 1 and lengths == sorted(lengths)
