"""Words of known times, as an engine hears them and as a segment keeps them."""

from __future__ import annotations

import re

from engine.api import SAMPLE_RATE, Hypothesis, Segment, Word
from streamer.transcription.settings import SessionSettings
from streamer.transcription.utterance import Utterance


def plain_words(text: str) -> list[str]:
    """Split a text into words, without case and punctuation."""
    return re.findall(r"[\w']+", text.lower())


def said(text: str, start_s: float = 0.0, word_s: float = 0.4) -> list[Word]:
    """Make words of equal length, one after the other."""
    words = []
    for i, piece in enumerate(text.split()):
        start = int((start_s + i * word_s) * SAMPLE_RATE)
        words.append(Word(" " + piece, start, start + int(word_s * SAMPLE_RATE), 0.9))
    return words


def hypothesis(words: list[Word], end: int, start: int = 0) -> Hypothesis:
    """Make what an engine returns where it hears these words."""
    text = "".join(word.text for word in words)
    segments = (Segment(text, words[0].start, words[-1].end, False, tuple(words)),)
    return Hypothesis(start, end, segments, "en", 1.0, avg_logprob=-0.2)


def heard(text: str, settings: SessionSettings | None = None) -> Utterance:
    """Make a segment in which two windows heard this text."""
    segment = Utterance(0, 0, settings or SessionSettings())
    words = said(text)
    for _ in range(2):
        segment.accept(
            hypothesis(words, words[-1].end + SAMPLE_RATE), is_pause=True, may_settle=True
        )
    return segment
