"""What was said a while ago, without the silence between: context for a second reading.

A short turn that follows a long silence is read without context, and often misread. The turns
before it, one close behind the other, show the model the speaker's voice and what is talked about.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.api import SAMPLE_RATE, Samples, Word
from streamer.transcription.buffer import AudioBuffer

MAX_RECALL = 12 * SAMPLE_RATE  # of sound that is kept, in whole turns
MAX_AGE = 30 * SAMPLE_RATE  # silence after which what was said is forgotten


@dataclass(frozen=True, slots=True)
class RecentUtterance:
    """Something that was said."""

    start: int
    sound: Samples  # with what little silence its segment has at its ends
    words: tuple[Word, ...]

    @property
    def end(self) -> int:
        return self.start + len(self.sound)


@dataclass(frozen=True, slots=True)
class SpokenContext:
    """Turns side by side, as they stand in front of a later one."""

    start: int  # of the later turn
    sound: Samples
    words: list[Word]  # at the times that they have there

    def join(self, buffer: AudioBuffer, end: int) -> Samples:
        """Return the sound of the turns, and of the later one up to `end`, (T,)."""
        return np.concatenate([self.sound, buffer.read(self.start, end)])


class RecentUtterances:
    """Keeps the last turns of one channel."""

    def __init__(self) -> None:
        self._turns: deque[RecentUtterance] = deque()  # no more than MAX_RECALL of them

    def add(self, start: int, end: int, buffer: AudioBuffer, words: Sequence[Word]) -> None:
        """Keep a turn with words, and as many of those before it as there is room for.

        A longer one is not kept, and puts those before it too far away.
        """
        if start < buffer.start or end - start > MAX_RECALL:
            self.forget()
        elif words:
            self._turns.append(RecentUtterance(start, buffer.read(start, end), tuple(words)))
        while self.length > MAX_RECALL:
            self._turns.popleft()

    def forget(self) -> None:
        self._turns.clear()

    def forget_if_old(self, now: int) -> None:
        """Forget all if nothing was said for long before this position."""
        if self._turns and now - self._turns[-1].end > MAX_AGE:
            self.forget()

    @property
    def length(self) -> int:
        """Samples kept."""
        return sum(len(turn.sound) for turn in self._turns)

    def before(self, start: int) -> SpokenContext | None:
        """Put what is kept in front of a turn that starts here; None where nothing is."""
        if not self._turns:
            return None
        words: list[Word] = []
        position = start - self.length
        for turn in self._turns:
            shift = position - turn.start
            words += [
                Word(word.text, word.start + shift, word.end + shift, word.probability)
                for word in turn.words
            ]
            position += len(turn.sound)
        return SpokenContext(start, np.concatenate([turn.sound for turn in self._turns]), words)
