"""The marks that wait to be worked off, and which of them are left out where decoding is late.

Overload means fewer and larger updates: checkpoints that come too late for captions are skipped,
and what is in flight makes way for a text that may be final.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from engine.api import Window
from streamer.transcription.pace import Pace
from streamer.transcription.second_pass import Context
from streamer.transcription.segmenter import Checkpoint, Closed, Mark, Opened, Rested, may_be_last
from streamer.transcription.utterance import OpenSegment

# What is being decoded: a mark, a refresh, or with which context a second reading is
Flying = Mark | Window | Context

URGENT_S = 0.1  # a text that may be final overtakes what is in flight when it is overdue by more
AGAIN_S = 0.8  # a second reading that is overdue by more is given up: the first one stands


class MarkQueue:
    """Marks in their order; bounded by who feeds the sound."""

    def __init__(self, pace: Pace) -> None:
        self._marks: deque[Mark] = deque()
        self._pace = pace

    def __len__(self) -> int:
        return len(self._marks)

    @property
    def first(self) -> Mark | None:
        """The next one to work off."""
        return self._marks[0] if self._marks else None

    @property
    def num_opened(self) -> int:
        """Segments whose beginning waits."""
        return sum(isinstance(mark, Opened) for mark in self._marks)

    def add(self, marks: Iterable[Mark]) -> None:
        self._marks += marks

    def drop_first(self) -> None:
        self._marks.popleft()

    def skip(self, segment: OpenSegment, now: float, *, has_partials: bool) -> None:
        """Drop checkpoints that are too late to be of use, or were not asked for."""
        while isinstance(mark := self.first, Checkpoint):
            is_next = len(self._marks) == 1
            is_late = self._pace.is_late(mark.end, now) and not is_next
            # a pause is decoded at once, so that the Final is ready when the silence is long enough
            is_unasked = not has_partials and not (is_next and mark.is_pause)
            if segment.must_slide(mark.end) or not (is_late or is_unasked):
                return
            self._marks.popleft()

    def overtake_at(self, flying: Flying | None, segment: OpenSegment) -> float | None:
        """When what is in flight is to be given up for a mark here; None: as things are, never."""
        waiting = next((mark for mark in self._marks if may_be_last(mark)), None)
        if waiting is None:
            return None
        assert isinstance(waiting, Checkpoint | Rested | Closed), waiting
        due_at = self._pace.due_at(waiting.end)
        if isinstance(flying, Window):
            return due_at + URGENT_S
        if isinstance(flying, Context) and self._pace.is_live:
            return due_at + AGAIN_S
        if isinstance(flying, Checkpoint) and self._may_skip(flying, segment):
            return max(due_at + URGENT_S, self._pace.late_at(flying.end))
        return None

    def _may_skip(self, mark: Checkpoint, segment: OpenSegment) -> bool:
        return self._pace.is_live and not mark.is_pause and not segment.must_slide(mark.end)
