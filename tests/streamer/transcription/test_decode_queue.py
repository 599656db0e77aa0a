"""Which points are left out where decoding is late."""

from __future__ import annotations

import numpy as np
import pytest

from engine.api import SAMPLE_RATE, Hypothesis, Window
from streamer.transcription.decode_queue import (
    PREEMPT_DELAY_S,
    DecodeQueue,
    InFlightWork,
)
from streamer.transcription.pace import MAX_CAPTION_DELAY_S, MAX_LIVE_LEAD_S, Pace
from streamer.transcription.second_pass import SECOND_PASS_TIMEOUT_S, SpokenContext
from streamer.transcription.segmenter import Checkpoint, Closed, DecodePoint, Opened, Paused
from streamer.transcription.settings import SessionSettings
from streamer.transcription.utterance import Utterance

REFRESH = Window(0, np.zeros(SAMPLE_RATE, np.float32))
SECOND_PASS = SpokenContext(0, np.zeros(SAMPLE_RATE, np.float32), [])
UTTERANCE = Utterance(0, 0, SessionSettings())


def live() -> Pace:
    """Audio whose sample n is due at n / SAMPLE_RATE."""
    pace = Pace()
    pace.receive(0, SAMPLE_RATE, SAMPLE_RATE, 0.0)
    pace.receive(SAMPLE_RATE, 2 * SAMPLE_RATE, SAMPLE_RATE, 1.0)
    return pace


def fast() -> Pace:
    pace = Pace()
    pace.receive(0, int(MAX_LIVE_LEAD_S + 2) * SAMPLE_RATE, SAMPLE_RATE, 0.0)
    return pace


def step(seconds: float) -> Checkpoint:
    return Checkpoint(int(seconds * SAMPLE_RATE), is_pause=False)


def pause(seconds: float) -> Checkpoint:
    return Checkpoint(int(seconds * SAMPLE_RATE), is_pause=True)


def queue_of(*points: DecodePoint, pace: Pace | None = None) -> DecodeQueue:
    queue = DecodeQueue(pace or live())
    queue.add(points)
    return queue


def ends(queue: DecodeQueue) -> list[float]:
    found = []
    while isinstance(point := queue.first, Checkpoint | Paused | Closed):
        found.append(point.end / SAMPLE_RATE)
        queue.drop_first()
    return found


def test_late_checkpoints_are_skipped_but_for_the_last() -> None:
    queue = queue_of(step(1), step(2), step(3))
    queue.skip(UTTERANCE, 9.0, has_partials=True)
    assert ends(queue) == [3]


def test_checkpoints_in_time_are_kept() -> None:
    queue = queue_of(step(1), step(2))
    queue.skip(UTTERANCE, 1 + MAX_CAPTION_DELAY_S - 0.01, has_partials=True)
    assert ends(queue) == [1, 2]


def test_nothing_is_late_that_is_sent_faster_than_it_plays() -> None:
    queue = queue_of(step(1), step(2), pace=fast())
    queue.skip(UTTERANCE, 99.0, has_partials=True)
    assert ends(queue) == [1, 2]


def test_without_partials_only_the_last_pause_is_decoded() -> None:
    queue = queue_of(step(1), pause(2), step(3), pause(4))
    queue.skip(UTTERANCE, 0.0, has_partials=False)
    assert ends(queue) == [4]


def test_a_checkpoint_at_which_the_window_must_slide_is_kept() -> None:
    queue = queue_of(step(40), step(41))
    queue.skip(UTTERANCE, 99.0, has_partials=False)
    assert ends(queue) == [40, 41]


@pytest.mark.parametrize(
    ("first", "may_end"),
    [(None, True), (step(3), False), (Paused(2 * SAMPLE_RATE), True), (Paused(SAMPLE_RATE), False)],
)
def test_an_utterance_may_end_where_it_was_decoded_last(
    first: DecodePoint | None, may_end: bool
) -> None:
    queue = queue_of(*([] if first is None else [first]))
    utterance = Utterance(0, 0, SessionSettings())
    found = Hypothesis(0, 2 * SAMPLE_RATE, (), "en", 1.0, avg_logprob=-0.2)
    utterance.accept(found, is_pause=True, may_settle=True)
    assert queue.may_end(utterance, is_speaking=False) is may_end
    assert queue.may_end(utterance, is_speaking=True) is (may_end and first is not None)


def test_segments_that_wait_to_begin_are_counted() -> None:
    assert queue_of(Opened(0), step(1), Closed(2, 2, True), Opened(3)).num_opened == 2


@pytest.mark.parametrize(
    ("in_flight", "at"),
    [
        (REFRESH, 2 + PREEMPT_DELAY_S),
        (step(1), 2 + PREEMPT_DELAY_S),
        (step(1.9), 1.9 + MAX_CAPTION_DELAY_S),  # not before it is late itself
        (SECOND_PASS, 2 + SECOND_PASS_TIMEOUT_S),
        (pause(2), None),  # may be final itself
        (None, None),
    ],
)
def test_what_is_in_flight_makes_way_for_what_may_be_final(
    in_flight: InFlightWork | None, at: float | None
) -> None:
    found = queue_of(step(1), pause(2)).preempt_at(in_flight, UTTERANCE)
    assert found == (None if at is None else pytest.approx(at))
    assert queue_of(step(1), step(2)).preempt_at(in_flight, UTTERANCE) is None


def test_a_second_reading_of_a_recording_takes_the_time_it_needs() -> None:
    queue = queue_of(Closed(SAMPLE_RATE, SAMPLE_RATE, True), pace=fast())
    assert queue.preempt_at(SECOND_PASS, UTTERANCE) is None


def test_checkpoints_that_made_way_are_dropped_if_they_are_late() -> None:
    queue = queue_of(step(1), step(2), pause(3))
    queue.skip(UTTERANCE, 1 + MAX_CAPTION_DELAY_S, has_partials=True)
    assert ends(queue) == [2, 3]
