"""Which language a stream speaks: heard from its first windows, then kept.

A second of sound can sound like any of several languages, so the verdicts of successive windows
are weighed by how much sound they rest on, until there is enough; after that the language stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.api import SAMPLE_RATE

# A detected_language is final when it rests on so much sound, in seconds, and is so probable.
DETECTION_THRESHOLDS = ((2.0, 0.9), (5.0, 0.5))
# After so much sound the best guess is kept, however improbable.
MAX_DETECTION_S = 15.0


@dataclass(frozen=True, slots=True)
class DetectedLanguage:
    """What a window was taken for."""

    language: str  # ISO code
    probability: float


class StreamLanguage:
    """The language of one stream."""

    def __init__(self, language: str | None) -> None:
        """Begin with the language given, or None to hear it."""
        self._settled = None if language is None else DetectedLanguage(language, 1.0)

    @property
    def settled(self) -> DetectedLanguage | None:
        """The language to decode in, or None while it must be heard again."""
        return self._settled

    def hear(
        self, probabilities: Mapping[str, float], num_samples: int, is_final: bool
    ) -> DetectedLanguage:
        """Judge a window, and settle if it is convincing.

        Args:
            probabilities: of each language, from the start-of-transcript position.
            num_samples: of sound in the window.
            is_final: a final window that is convincing enough to be written is so for the rest.
        """
        if self._settled is not None:
            return self._settled
        language = max(probabilities, key=lambda code: probabilities[code])
        detected_language = DetectedLanguage(language, probabilities[language])
        seconds = num_samples / SAMPLE_RATE
        if seconds >= MAX_DETECTION_S or any(
            (is_final or seconds >= least_s) and detected_language.probability >= least
            for least_s, least in DETECTION_THRESHOLDS
        ):
            self._settled = detected_language
        return detected_language
