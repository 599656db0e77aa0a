"""The engine of a history: it reads the words off the audio, and answers as the history says."""

from __future__ import annotations

import random

from engine.api import SAMPLE_RATE, Hypothesis, Segment, Window, Word
from tests.simulation.history import Answer, History
from tests.simulation.track import read_audio

CUT, WAVERED = "x", "y"  # what ends a word that a window's edge cuts, and one misread otherwise
RECOGNISED = 0.6  # of a word, which is more than the two parts have that a cut makes of one
MAX_STRETCH = 3 * SAMPLE_RATE  # the middle of a word moves less than AlignmentCosts.max_distance_s
NEAR = SAMPLE_RATE // 4  # a word that ends this near to a window's end may be misread


class Script:
    """Answers the windows of one history, in turn."""

    def __init__(self, history: History) -> None:
        self.num_asked = 0  # windows
        self._history = history

    def next_answer(self) -> Answer:
        """Return how the next window is answered."""
        answers = self._history.answers
        answer = answers[self.num_asked % len(answers)]
        self.num_asked += 1
        return answer

    def read(self, window: Window, language: str | None) -> Hypothesis:
        """Write down the words in a window; the same window is always read the same.

        Args:
            language: that the stream was opened for; None has it detected.
        """
        manner = self._history.manner
        rng = random.Random(f"{self._history.seed} {window.start} {window.end}")
        words = self._words(window, rng)
        if words and words[-1].end > window.end - NEAR:
            if not window.is_final and rng.random() < manner.omit:
                words.pop()
            elif rng.random() < manner.waver:
                words[-2:] = [Word(w.text + WAVERED, w.start, w.end, 0.5) for w in words[-2:]]
        is_foreign = language is None and rng.random() < manner.foreign
        probability = 1.0 if language is not None else 0.45 if is_foreign else 0.99
        text = "".join(word.text for word in words)
        segments: tuple[Segment, ...] = ()
        if words:
            segments = (Segment(text, words[0].start, words[-1].end, False, tuple(words)),)
        return Hypothesis(
            window.start,
            window.end,
            segments,
            language or ("de" if is_foreign else "en"),
            probability,
            avg_logprob=-0.2,
            no_speech_probability=0.01 if words else 0.9,
            compression_ratio=1.2,
        )

    def _words(self, window: Window, rng: random.Random) -> list[Word]:
        manner, spoken = self._history.manner, self._history.words
        words: list[Word] = []
        last = window.start
        stretches = read_audio(window.audio)
        for index, stretch in enumerate(stretches):
            of = spoken[stretch.number]
            length = stretch.end - stretch.start
            if length <= RECOGNISED * of.length:
                continue
            text = of.text if length == of.length else of.text.rstrip(".") + CUT
            start = window.start + stretch.start + rng.randint(-manner.jitter, manner.jitter)
            end = window.start + stretch.end + rng.randint(-manner.jitter, manner.jitter)
            if rng.random() < manner.stretch:
                following = stretches[index + 1 :]
                end = window.start + (following[0].start if following else len(window.audio))
                end = min(end, window.start + stretch.end + MAX_STRETCH)
            start = min(max(start, last), window.end - 1)
            end = min(max(end, start + 1), window.end)
            last = end
            probability = 0.45 if rng.random() < manner.unsure else 0.95
            words.append(Word(" " + text, start, end, probability))
        return words


def plain(text: str) -> list[str]:
    """List the words of a text as they were spoken, however they were misread."""
    return [word.rstrip("." + CUT + WAVERED) for word in text.split()]


def cut_words(text: str) -> list[str]:
    """List the words of a text that were read where an edge cuts them."""
    return [plain(word)[0] for word in text.split() if CUT in word]
