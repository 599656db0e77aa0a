"""Decide whether a hypothesis is the text of speech, or the model's invention.

Several signals together, never a list of phrases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.api import Hypothesis, Word
from streamer.word import key, words_of

NO_SPEECH = 0.6  # whisper/transcribe.py
LOW_LOGPROB = -1.0  # whisper/transcribe.py
VERY_LOW_LOGPROB = -1.5
HIGH_COMPRESSION = 2.4  # whisper/transcribe.py
MAX_REPEATS = 4  # of a phrase in a row, in a text that compresses too well
MAX_PERIOD = 8  # words of such a phrase
LEFT_OVER = 20_000  # 1.25 s of speech behind the last word are worth another window


@dataclass(frozen=True, slots=True)
class Heard:
    """A hypothesis and the words of it that are taken for speech."""

    hypothesis: Hypothesis
    words: list[Word]
    reason: str | None  # why words were withheld
    has_loop: bool  # words were left out, since they went round in circles


def judge(hypothesis: Hypothesis) -> Heard:
    """Choose the words of a hypothesis that are taken for speech."""
    reason = doubt(hypothesis)
    all_words = [] if reason else words_of(hypothesis)
    words = cut_loop(all_words) if has_loop(hypothesis) else all_words
    return Heard(hypothesis, words, reason, len(words) < len(all_words))


def doubt(hypothesis: Hypothesis) -> str | None:
    """Name the reason to withhold this text, or return None to show it."""
    if hypothesis.no_speech_probability > NO_SPEECH and hypothesis.avg_logprob < LOW_LOGPROB:
        return "no_speech"
    if hypothesis.avg_logprob < VERY_LOW_LOGPROB:
        return "low_probability"
    return None


def has_loop(hypothesis: Hypothesis) -> bool:
    """Tell whether the decoder went round in circles."""
    return hypothesis.compression_ratio > HIGH_COMPRESSION or hypothesis.is_truncated


def cut_loop(words: Sequence[Word]) -> list[Word]:
    """Keep the words up to where a phrase begins to repeat itself over and over, and it once.

    What comes behind a loop is not to be trusted either. People do repeat themselves; so this is
    for the words of a hypothesis that has a loop.
    """
    keys = [key(word.text) for word in words]
    for start in range(len(keys)):
        for period in range(1, MAX_PERIOD + 1):
            phrase = keys[start : start + period]
            if phrase * MAX_REPEATS == keys[start : start + period * MAX_REPEATS]:
                return list(words[: start + period])
    return list(words)
