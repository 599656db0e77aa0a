"""How a transcript is written for a Deepgram client: punctuated or bare, with words and times."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from engine.api import Word
from streamer.protocols.deepgram.messages import Alternative, ResultWord
from streamer.wire import seconds

# written without spaces, so that a piece without a leading space is a word of its own
UNSPACED_LANGUAGES = frozenset({"zh", "ja", "th", "lo", "my", "km", "yue", "bo"})
EDGE_PUNCTUATION = '.,!?;:…"“”„«»()[]{}¿¡-–—'
INNER_PUNCTUATION = re.compile(r"[。、，！？；：「」『』・]")


def write_alternative(
    text: str,
    words: Sequence[Word],
    confidence: float,
    language: str,
    *,
    punctuate: bool,
    names_language: bool,
) -> Alternative:
    """Write text and words as an alternative; `words` are as in an engine's segment."""
    text = text.strip()
    if not text:
        return Alternative("", 0.0, [])
    result_words = []
    for word in join_pieces(words, language):
        bare = strip_punctuation(word.text)
        if not bare:
            continue
        result_words.append(
            ResultWord(
                word=bare,
                start=seconds(word.start),
                end=seconds(word.end),
                confidence=round(word.probability, 4),
                punctuated_word=word.text.strip() if punctuate else None,
            )
        )
    return Alternative(
        transcript=text if punctuate else strip_punctuation(text),
        confidence=round(confidence, 4),
        words=result_words,
        languages=[language] if names_language and language else None,
    )


def join_pieces(words: Sequence[Word], language: str) -> list[Word]:
    """Join pieces without a space before them to the word they belong to: " semi", "-final"."""
    joined: list[Word] = []
    for word in words:
        is_piece = joined and not word.text[:1].isspace() and language not in UNSPACED_LANGUAGES
        if is_piece:
            first = joined.pop()
            word = Word(
                text=first.text + word.text,
                start=first.start,
                end=word.end,
                probability=min(first.probability, word.probability),
            )
        joined.append(word)
    return joined


def strip_punctuation(text: str) -> str:
    """Write text as Deepgram does without punctuate: lower case, no punctuation."""
    text = INNER_PUNCTUATION.sub(" ", text)
    tokens = (token.strip(EDGE_PUNCTUATION) for token in text.split())
    return " ".join(token for token in tokens if token).lower()


def spread(text: str, start: int, end: int) -> list[Word]:
    """Spread the words of a text over its time by their length; for text without word times."""
    tokens = text.split()
    total = sum(len(token) + 1 for token in tokens)
    words, position = [], 0
    for token in tokens:
        begin = start + (end - start) * position // total
        position += len(token) + 1
        words.append(
            Word(
                text=" " + token,
                start=begin,
                end=start + (end - start) * position // total,
                probability=0.5,
            )
        )
    return words


def confidence_of(words: Sequence[Word], avg_logprob: float) -> float:
    """Mean probability of the words, or of the tokens where there are no word times."""
    if words:
        return sum(word.probability for word in words) / len(words)
    return min(1.0, math.exp(avg_logprob))
