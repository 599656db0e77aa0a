"""The second pass: a short, uncertain utterance is decoded again, behind those before it.

A short utterance after a long silence has no context and is often misrecognised. The utterances
before it, put side by side without the silence between them, show the model the speaker's voice and
the subject. The second pass runs while the pause lasts. It counts only if the utterance ends there.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.api import SAMPLE_RATE, Hypothesis, Samples, Word
from streamer.transcription.alignment import behind, uncovered
from streamer.transcription.buffer import AudioBuffer
from streamer.transcription.hallucination import filter_hypothesis
from streamer.transcription.stability import MIN_SURE_PROBABILITY
from streamer.transcription.utterance import Utterance

SECOND_PASS_MAX_LENGTH = 9 * SAMPLE_RATE // 2  # 4.5 s: longer utterances are context enough
SECOND_PASS_CONTEXT_RATIO = 2  # least context of the second pass over that of the first
SECOND_PASS_MIN_PROBABILITY_RATIO = 0.8  # least probability of its words over that of the first's
SECOND_PASS_TIMEOUT_S = 0.8  # it is abandoned when a Final is overdue by more: the first one stands
MAX_WORDS_PER_S = 7  # a second pass with more words a second repeats what was said before
MAX_RECENT_LENGTH = 12 * SAMPLE_RATE  # of audio kept, in whole utterances
MAX_RECENT_AGE = 30 * SAMPLE_RATE  # of silence, after which all of them are forgotten


class SecondPass:
    """Decides for one channel what is decoded again, and which of the two texts counts."""

    def __init__(self, recent: RecentUtterances) -> None:
        self._recent = recent  # what may be put in front
        self._is_wanted = False  # the newest words of the open utterance are uncertain

    def consider(self, words: Sequence[Word], length: int, *, is_pause: bool) -> None:
        """Look at the first pass of the open utterance.

        Args:
            words: those that are not settled.
            length: of the utterance up to the end of the window, in samples.
            is_pause: silence follows, so the utterance may end here.
        """
        is_short = is_pause and length <= SECOND_PASS_MAX_LENGTH
        self._is_wanted = is_short and bool(words) and _probability(words) < MIN_SURE_PROBABILITY

    def cancel(self) -> None:
        """Leave it at the first pass, until `consider` sees another one."""
        self._is_wanted = False

    def is_worthwhile(self, utterance: Utterance) -> bool:
        """Return whether the open utterance is to be decoded again, with more context."""
        least = max(1, SECOND_PASS_CONTEXT_RATIO * utterance.context)
        return self._is_wanted and self._recent.length >= least

    def start(self, utterance: Utterance) -> SpokenContext:
        """Return the context to decode a worthwhile utterance behind, once."""
        self._is_wanted = False
        context = self._recent.before(utterance.start)
        assert context is not None, utterance.start
        return context

    def accept(self, hypothesis: Hypothesis, context: SpokenContext, utterance: Utterance) -> None:
        """Choose between the words of the second pass and those of the first.

        Args:
            hypothesis: of the utterance behind its context.
            context: as `start` returned it.
            utterance: takes the words, should it end where the hypothesis does.
        """
        first, second = utterance.decoded, filter_hypothesis(hypothesis)
        assert first is not None and first.hypothesis.end == hypothesis.end, hypothesis.end
        known = [*context.words, *utterance.transcript.settled]
        words = behind(utterance.start, uncovered(known, second.words))
        is_fluent = len(words) * SAMPLE_RATE <= MAX_WORDS_PER_S * (hypothesis.end - utterance.start)
        is_same_language = first.hypothesis.language == hypothesis.language
        before = utterance.transcript.newest
        if not (before and words) or second.has_loop or not is_fluent or not is_same_language:
            return
        if _probability(words) >= SECOND_PASS_MIN_PROBABILITY_RATIO * _probability(before):
            utterance.transcript.revise(words)


def _probability(words: Sequence[Word]) -> float:
    """Return the geometric mean of the words' probabilities."""
    return math.exp(sum(math.log(max(word.probability, 1e-3)) for word in words) / len(words))


@dataclass(frozen=True, slots=True)
class RecentUtterance:
    """An utterance that is over."""

    start: int
    audio: Samples  # with what little silence it has at its ends
    words: tuple[Word, ...]

    @property
    def end(self) -> int:
        return self.start + len(self.audio)


@dataclass(frozen=True, slots=True)
class SpokenContext:
    """Utterances side by side, as they stand in front of a later one."""

    start: int  # of the later utterance
    audio: Samples
    words: list[Word]  # at the times that they have there

    def join(self, buffer: AudioBuffer, end: int) -> Samples:
        """Return the audio of the context, and of the later utterance up to `end`, (T,)."""
        return np.concatenate([self.audio, buffer.read(self.start, end)])


class RecentUtterances:
    """Keeps the last utterances of one channel."""

    def __init__(self) -> None:
        self._utterances: deque[RecentUtterance] = deque()  # bounded by MAX_RECENT_LENGTH

    def add(self, start: int, end: int, buffer: AudioBuffer, words: Sequence[Word]) -> None:
        """Keep an utterance with words, and as many of those before it as there is room for.

        One that is too long is not kept, and puts those before it too far away.
        """
        if start < buffer.start or end - start > MAX_RECENT_LENGTH:
            self.forget()
        elif words:
            self._utterances.append(RecentUtterance(start, buffer.read(start, end), tuple(words)))
        while self.length > MAX_RECENT_LENGTH:
            self._utterances.popleft()

    def forget(self) -> None:
        self._utterances.clear()

    def forget_if_old(self, now: int) -> None:
        """Forget all if nothing was said for long before this position."""
        if self._utterances and now - self._utterances[-1].end > MAX_RECENT_AGE:
            self.forget()

    @property
    def length(self) -> int:
        """Samples kept."""
        return sum(len(utterance.audio) for utterance in self._utterances)

    def before(self, start: int) -> SpokenContext | None:
        """Put what is kept in front of an utterance that starts here; None where nothing is."""
        if not self._utterances:
            return None
        words: list[Word] = []
        position = start - self.length
        for utterance in self._utterances:
            shift = position - utterance.start
            words += [
                Word(word.text, word.start + shift, word.end + shift, word.probability)
                for word in utterance.words
            ]
            position += len(utterance.audio)
        audio = np.concatenate([utterance.audio for utterance in self._utterances])
        return SpokenContext(start, audio, words)
