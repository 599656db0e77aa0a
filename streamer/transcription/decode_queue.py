"""The points that wait to be worked off, and which of them are left out where decoding is late.

Overload means fewer and larger updates: checkpoints that come too late for captions are skipped,
and what is in flight makes way for a text that may be final.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from engine.api import Window
from streamer.transcription.pace import Pace
from streamer.transcription.second_pass import SpokenContext
from streamer.transcription.segmenter import (
    Checkpoint,
    Closed,
    DecodePoint,
    Opened,
    Paused,
    may_be_last,
)
from streamer.transcription.utterance import Utterance

# What is being decoded: a point, a refresh, or with which context a second reading is
InFlightWork = DecodePoint | Window | SpokenContext

URGENT_S = 0.1  # a text that may be final overtakes what is in flight when it is overdue by more
SECOND_PASS_TIMEOUT_S = (
    0.8  # a second reading that is overdue by more is given up: the first one stands
)


class DecodeQueue:
    """Marks in their order; bounded by who feeds the sound."""

    def __init__(self, pace: Pace) -> None:
        self._points: deque[DecodePoint] = deque()
        self._pace = pace

    def __len__(self) -> int:
        return len(self._points)

    @property
    def first(self) -> DecodePoint | None:
        """The next one to work off."""
        return self._points[0] if self._points else None

    @property
    def num_opened(self) -> int:
        """Segments whose beginning waits."""
        return sum(isinstance(point, Opened) for point in self._points)

    def add(self, points: Iterable[DecodePoint]) -> None:
        self._points += points

    def drop_first(self) -> None:
        self._points.popleft()

    def skip(self, segment: Utterance, now: float, *, has_partials: bool) -> None:
        """Drop checkpoints that are too late to be of use, or were not asked for."""
        while isinstance(point := self.first, Checkpoint):
            is_next = len(self._points) == 1
            is_late = self._pace.is_late(point.end, now) and not is_next
            # a pause is decoded at once, so that the Final is ready when the silence is long enough
            is_unasked = not has_partials and not (is_next and point.is_pause)
            if segment.must_slide(point.end) or not (is_late or is_unasked):
                return
            self._points.popleft()

    def preempt_at(self, in_flight: InFlightWork | None, segment: Utterance) -> float | None:
        """When what is in flight is to be given up for a point here; None: as things are, never."""
        waiting = next((point for point in self._points if may_be_last(point)), None)
        if waiting is None:
            return None
        assert isinstance(waiting, Checkpoint | Paused | Closed), waiting
        due_at = self._pace.due_at(waiting.end)
        if isinstance(in_flight, Window):
            return due_at + URGENT_S
        if isinstance(in_flight, SpokenContext) and self._pace.is_live:
            return due_at + SECOND_PASS_TIMEOUT_S
        if isinstance(in_flight, Checkpoint) and self._may_skip(in_flight, segment):
            return max(due_at + URGENT_S, self._pace.late_at(in_flight.end))
        return None

    def _may_skip(self, point: Checkpoint, segment: Utterance) -> bool:
        return self._pace.is_live and not point.is_pause and not segment.must_slide(point.end)
