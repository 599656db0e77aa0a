"""Score texts: normalise both sides, align them, count errors, find what doubled or vanished."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import jiwer
import numpy as np
from whisper_normalizer.basic import BasicTextNormalizer
from whisper_normalizer.english import EnglishTextNormalizer

CHARACTERS = ("zh", "ja", "yue")  # scored by character: they write no spaces
LOST_RUN = 3  # words in a row that only the other text has: more than a misheard word


@dataclass(frozen=True, slots=True)
class Errors:
    """Counts of an alignment; they add up over recordings."""

    num_words: int = 0  # of the reference
    num_wrong: int = 0  # substituted, deleted or inserted
    num_lost: int = 0  # deleted in runs of LOST_RUN or more
    num_doubled: int = 0  # inserted, and the same as the words just before or behind

    def __add__(self, other: Errors) -> Errors:
        return Errors(
            self.num_words + other.num_words,
            self.num_wrong + other.num_wrong,
            self.num_lost + other.num_lost,
            self.num_doubled + other.num_doubled,
        )

    @property
    def rate(self) -> float:
        """Error rate in percent."""
        return 100.0 * self.num_wrong / max(1, self.num_words)


@dataclass(slots=True)
class Comparison:
    """Errors of streamed text, and of whole recordings, against the truth; in English."""

    streamed: Errors = field(default_factory=Errors)
    whole: Errors = field(default_factory=Errors)

    def add(self, truth: str, streamed: str, whole: str) -> None:
        """Count the errors of a recording."""
        words = normalize(truth, "en")
        self.streamed += compare(words, normalize(streamed, "en"))
        self.whole += compare(words, normalize(whole, "en"))

    @property
    def excess(self) -> float:
        """Points of word error rate above whole recordings."""
        return self.streamed.rate - self.whole.rate


@cache
def _normalizer(language: str) -> BasicTextNormalizer | EnglishTextNormalizer:
    if language == "en":
        return EnglishTextNormalizer()
    return BasicTextNormalizer(split_letters=language in CHARACTERS)


def normalize(text: str, language: str, *, digits: bool = False) -> list[str]:
    """Return the words that are compared.

    Args:
        text: as written by a person or a model.
        language: ISO 639-1; zh and ja become characters.
        digits: numbers are read digit by digit, however they are grouped.
    """
    normal: str = _normalizer(language)(text)
    if digits:
        normal = "".join(f" {c} " if c.isdigit() else c for c in normal)
    return normal.split()


def standard_error(more: Sequence[int], num_words: int) -> float:
    """Return the standard error, in points, of the difference of two error rates.

    Args:
        more: words wrong in the one more than in the other, of each recording.
        num_words: of all recordings.
    """
    if not more:
        return 0.0
    return 100.0 * float(np.std(more)) * math.sqrt(len(more)) / max(1, num_words)


def compare(reference: list[str], words: list[str]) -> Errors:
    """Align normalised words and count what differs."""
    if not reference or not words:
        num_lost = len(reference) if len(reference) >= LOST_RUN else 0
        return Errors(len(reference), len(reference) + len(words), num_lost, 0)
    output = jiwer.process_words(" ".join(reference), " ".join(words))
    num_lost = num_doubled = 0
    for chunk in output.alignments[0]:
        first, last = chunk.hyp_start_idx, chunk.hyp_end_idx
        if chunk.type == "delete":
            length = chunk.ref_end_idx - chunk.ref_start_idx
            num_lost += length if length >= LOST_RUN else 0
        elif chunk.type == "insert":
            length, inserted = last - first, words[first:last]
            if inserted in (words[max(0, first - length) : first], words[last : last + length]):
                num_doubled += length
    num_wrong = output.substitutions + output.deletions + output.insertions
    return Errors(len(reference), num_wrong, num_lost, num_doubled)
