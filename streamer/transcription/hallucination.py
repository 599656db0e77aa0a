"""The hallucination filter: tell the text of speech from what the model invents.

Several signals together, never a list of phrases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.api import Hypothesis, Word
from streamer.transcription.word import key, words_of

NO_SPEECH_THRESHOLD = 0.6  # whisper/transcribe.py
LOGPROB_THRESHOLD = -1.0  # whisper/transcribe.py
MIN_LOGPROB = -1.5  # where nothing else speaks against the text
SHORT_TEXT_NUM_TOKENS = 10  # up to five words with timestamps, as the model likes to invent
COMPRESSION_RATIO_THRESHOLD = 2.4  # whisper/transcribe.py
MIN_LOOP_REPEATS = 4  # of a phrase in a row, in a text that compresses too well
MAX_LOOP_NUM_WORDS = 8  # of such a phrase
MAX_TIMELESS_LENGTH = 320  # 20 ms, the alignment's grain: a word this short was not said
MAX_NUM_TIMELESS_WORDS = 2  # such words at the end that alignment alone may account for
MIN_REST_LENGTH = 20_000  # 1.25 s of speech behind the last word are worth another window


@dataclass(frozen=True, slots=True)
class FilteredHypothesis:
    """A hypothesis and the words of it that are taken for speech."""

    hypothesis: Hypothesis
    words: list[Word]
    reason: str | None  # why words were withheld
    has_loop: bool  # words were left out, since they repeat themselves


def filter_hypothesis(hypothesis: Hypothesis) -> FilteredHypothesis:
    """Choose the words of a hypothesis that are taken for speech."""
    reason = reject_reason(hypothesis)
    all_words = [] if reason else words_of(hypothesis)
    words = cut_loop(all_words) if has_loop(hypothesis) else all_words
    is_loop = len(words) < len(all_words)
    if hypothesis.segments and hypothesis.segments[-1].words:
        words = cut_timeless(words)
    return FilteredHypothesis(hypothesis, words, reason, is_loop)


def reject_reason(hypothesis: Hypothesis) -> str | None:
    """Return the reason to withhold this text, or None to show it.

    The less likely it is that anyone speaks, the likelier a short text has to be: between certain
    speech and NO_SPEECH_THRESHOLD, the bound rises in a straight line from MIN_LOGPROB to
    LOGPROB_THRESHOLD. A long one was said, however badly it was recognised.
    """
    silence = hypothesis.no_speech_probability / NO_SPEECH_THRESHOLD
    if silence > 1.0 and hypothesis.avg_logprob < LOGPROB_THRESHOLD:
        return "no_speech"
    bound = MIN_LOGPROB
    if len(hypothesis.tokens) <= SHORT_TEXT_NUM_TOKENS:
        bound += min(1.0, silence) * (LOGPROB_THRESHOLD - MIN_LOGPROB)
    return "low_probability" if hypothesis.avg_logprob < bound else None


def has_loop(hypothesis: Hypothesis) -> bool:
    """Return whether the decoder repeats itself."""
    return hypothesis.compression_ratio > COMPRESSION_RATIO_THRESHOLD or hypothesis.is_truncated


def cut_loop(words: Sequence[Word]) -> list[Word]:
    """Keep the words up to where a phrase begins to repeat itself over and over, and it once.

    What comes behind a loop is not to be trusted either. People do repeat themselves; so this is
    for the words of a hypothesis that has a loop.
    """
    keys = [key(word.text) for word in words]
    for start in range(len(keys)):
        for period in range(1, MAX_LOOP_NUM_WORDS + 1):
            phrase = keys[start : start + period]
            if phrase * MIN_LOOP_REPEATS == keys[start : start + period * MIN_LOOP_REPEATS]:
                return list(words[: start + period])
    return list(words)


def cut_timeless(words: Sequence[Word]) -> list[Word]:
    """Leave out the words at the end that take no time.

    A window that ends in mid-sentence tempts the model to finish it: "just turn back on the
    switch?", where the audio is over. Alignment puts all such words at the window's end.
    """
    count = len(words)
    while count and words[count - 1].end - words[count - 1].start <= MAX_TIMELESS_LENGTH:
        count -= 1
    return list(words[:count] if len(words) - count > MAX_NUM_TIMELESS_WORDS else words)
