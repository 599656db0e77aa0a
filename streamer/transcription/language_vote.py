"""Choose the language of a stream from what was detected window by window."""

from __future__ import annotations

from engine.api import SAMPLE_RATE

MIN_VOTED_LENGTH = 3 * SAMPLE_RATE  # samples in a language, times its probability
MIN_VOTE_SHARE = 0.8  # of all votes
MIN_LANGUAGE_PROBABILITY = 0.5  # a less likely language is a guess


class LanguageVote:
    """Half a second of audio is often taken for another language; a few windows seldom are."""

    def __init__(self) -> None:
        self.language: str | None = None  # once it is chosen, it stays
        self._votes: dict[str, float] = {}

    def count(self, language: str, probability: float, length: int) -> None:
        """Take what was detected in a window with words, of so many samples."""
        if self.language is not None:
            return
        self._votes[language] = self._votes.get(language, 0.0) + probability * length
        if self._votes[language] >= max(
            MIN_VOTED_LENGTH, MIN_VOTE_SHARE * sum(self._votes.values())
        ):
            self.language = language
            self._votes.clear()
