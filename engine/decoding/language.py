"""Language detection of a stream: from its first windows, then fixed.

A second of audio is often ambiguous. So each window is decoded in the language detected in it until
a detection rests on enough audio and is probable enough. After that the language is fixed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.api import SAMPLE_RATE

# A detection is final when it rests on so many seconds of audio and has at least this probability.
DETECTION_THRESHOLDS = ((2.0, 0.9), (5.0, 0.5))
# From so much audio the most probable language is kept, however improbable.
MAX_DETECTION_S = 15.0


@dataclass(frozen=True, slots=True)
class DetectedLanguage:
    """The language detected in a window."""

    language: str  # ISO code
    probability: float


class StreamLanguage:
    """The language of one stream."""

    def __init__(self, language: str | None) -> None:
        """Begin with the language given, or None to detect it."""
        self._fixed = None if language is None else DetectedLanguage(language, 1.0)

    @property
    def fixed(self) -> DetectedLanguage | None:
        """The language to decode in, or None while each window must detect it."""
        return self._fixed

    def observe(
        self, probabilities: Mapping[str, float], num_samples: int, is_final: bool
    ) -> DetectedLanguage:
        """Detect a window's language, and fix it if that is certain enough.

        Args:
            probabilities: of each language, from the start-of-transcript position.
            num_samples: of audio in the window.
            is_final: a final window needs the probability only, and not the length.
        """
        if self._fixed is not None:
            return self._fixed
        language = max(probabilities, key=lambda code: probabilities[code])
        detected_language = DetectedLanguage(language, probabilities[language])
        seconds = num_samples / SAMPLE_RATE
        if seconds >= MAX_DETECTION_S or any(
            (is_final or seconds >= least_s) and detected_language.probability >= least
            for least_s, least in DETECTION_THRESHOLDS
        ):
            self._fixed = detected_language
        return detected_language
