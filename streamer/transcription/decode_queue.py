"""The decode points that wait, and which of them are skipped where decoding is late.

Overload means fewer and larger updates: checkpoints that come too late for captions are skipped,
and a text that may be final preempts what is in flight.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from engine.api import Window
from streamer.transcription.pace import Pace
from streamer.transcription.second_pass import SECOND_PASS_TIMEOUT_S, SpokenContext
from streamer.transcription.segmenter import (
    Checkpoint,
    Closed,
    DecodePoint,
    Opened,
    Paused,
    may_be_last,
)
from streamer.transcription.utterance import Utterance

# What is being decoded: a decode point, a refresh, or the context of a second pass
InFlightWork = DecodePoint | Window | SpokenContext

PREEMPT_DELAY_S = 0.1  # a text that may be final and is overdue by more preempts what is in flight


class DecodeQueue:
    """Decode points in their order; bounded by the backlog of audio that a session allows."""

    def __init__(self, pace: Pace) -> None:
        self._points: deque[DecodePoint] = deque()
        self._pace = pace

    def __len__(self) -> int:
        return len(self._points)

    @property
    def first(self) -> DecodePoint | None:
        """The next one."""
        return self._points[0] if self._points else None

    @property
    def num_opened(self) -> int:
        """Utterances whose beginning waits."""
        return sum(isinstance(point, Opened) for point in self._points)

    def add(self, points: Iterable[DecodePoint]) -> None:
        self._points += points

    def drop_first(self) -> None:
        self._points.popleft()

    def skip(self, utterance: Utterance, now: float, *, has_partials: bool) -> None:
        """Drop checkpoints that come too late to be of use, or were not asked for."""
        while isinstance(point := self.first, Checkpoint):
            is_next = len(self._points) == 1
            is_late = self._pace.is_late(point.end, now) and not is_next
            # a pause is decoded at once, so that the Final is ready when the silence is long enough
            is_unasked = not has_partials and not (is_next and point.is_pause)
            if utterance.must_slide(point.end) or not (is_late or is_unasked):
                return
            self._points.popleft()

    def may_end(self, utterance: Utterance, *, is_speaking: bool) -> bool:
        """Return whether the utterance ends, for all that is known, where it was decoded last."""
        match self.first:
            case None:
                return not is_speaking
            case Checkpoint():
                return False
            case Paused(end) | Closed(end):
                return utterance.has_decoded(end)
            case _:
                return True

    def preempt_at(self, in_flight: InFlightWork | None, utterance: Utterance) -> float | None:
        """Return when a point here preempts what is in flight; None: as things are, never."""
        waiting = next((point for point in self._points if may_be_last(point)), None)
        if waiting is None:
            return None
        assert isinstance(waiting, Checkpoint | Paused | Closed), waiting
        due_at = self._pace.due_at(waiting.end)
        if isinstance(in_flight, Window):
            return due_at + PREEMPT_DELAY_S
        if isinstance(in_flight, SpokenContext) and self._pace.is_live:
            return due_at + SECOND_PASS_TIMEOUT_S
        if isinstance(in_flight, Checkpoint) and self._may_skip(in_flight, utterance):
            return max(due_at + PREEMPT_DELAY_S, self._pace.late_at(in_flight.end))
        return None

    def _may_skip(self, point: Checkpoint, utterance: Utterance) -> bool:
        return self._pace.is_live and not point.is_pause and not utterance.must_slide(point.end)
