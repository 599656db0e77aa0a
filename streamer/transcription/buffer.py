"""The recent audio of one channel, addressed by absolute sample."""

from __future__ import annotations

import numpy as np

from engine.api import Samples

MIN_CAPACITY = 16_000  # 1 s: what an idle session holds


class AudioBuffer:
    """Holds samples from `start` to `end`, counted from the start of the stream.

    Its bound is its owner's: it grows with what is appended and shrinks with `drop_before`. The
    memory is at most four times what it holds, or MIN_CAPACITY.
    """

    def __init__(self) -> None:
        self._data: Samples = np.zeros(MIN_CAPACITY, np.float32)
        self._first = 0  # index of sample `start` in _data
        self.start = 0
        self.end = 0

    def __len__(self) -> int:
        return self.end - self.start

    def append(self, samples: Samples) -> None:
        """Add samples at the end; they are copied."""
        held, added = len(self), len(samples)
        if self._first + held + added > len(self._data):
            self._move(held + added)
        last = self._first + held
        self._data[last : last + added] = samples
        self.end += added

    def read(self, start: int, end: int) -> Samples:
        """Return a copy of the samples from `start` to `end`, all of which must be held."""
        assert self.start <= start <= end <= self.end, (self.start, start, end, self.end)
        first = self._first + start - self.start
        return self._data[first : first + end - start].copy()

    def drop_before(self, position: int) -> None:
        """Forget what lies before `position`."""
        position = min(position, self.end)
        if position <= self.start:
            return
        self._first += position - self.start
        self.start = position
        if len(self._data) > max(MIN_CAPACITY, 4 * len(self)):
            self._move(len(self))

    def _move(self, num_needed: int) -> None:
        """Move the held samples to where there is room for `num_needed` and as many again."""
        held = self._data[self._first : self._first + len(self)]
        data = np.zeros(max(MIN_CAPACITY, 2 * num_needed), np.float32)
        data[: len(held)] = held
        self._data, self._first = data, 0
