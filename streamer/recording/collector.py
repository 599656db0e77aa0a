"""The text of a whole recording, put together window by window. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from engine.api import Hypothesis, Segment, Word
from streamer.transcription.word import follow


@dataclass(frozen=True, slots=True)
class Passage:
    """A segment and the window that it was read from."""

    segment: Segment
    window: Hypothesis


class Collector:
    """Collects windows in the order of time."""

    def __init__(self) -> None:
        self.text = ""  # without space at its ends
        self.passages: list[Passage] = []  # those with text
        self.language = ""  # of the first window with text
        self.num_tokens = 0  # sampled

    def add(self, window: Hypothesis) -> str:
        """Take the next window; return what it adds to the text."""
        before = len(self.text)
        for segment in window.segments:
            if segment.text.strip():
                self.passages.append(Passage(segment, window))
                self.text += follow(self.text, segment.text)
                self.language = self.language or window.language
        self.num_tokens += len(window.tokens)
        return self.text[before:]

    @property
    def words(self) -> list[Word]:
        """All words with times, in order; none where the windows have none."""
        return [word for passage in self.passages for word in passage.segment.words]
