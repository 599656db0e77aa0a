"""Words: how a hypothesis is cut into them, what of one is compared, how they become a text."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from engine.api import Hypothesis, Segment, Word

SENTENCE_ENDS = ".?!…。？！"
MIN_WORD_LENGTH = 320  # 20 ms, of a word


def key(text: str) -> str:
    """Reduce a word to what is compared: its letters, marks and digits, without case."""
    return "".join(
        c
        for c in unicodedata.normalize("NFKC", text).casefold()
        if unicodedata.category(c)[0] in "LMN"
    )


def is_sentence_end(word: Word) -> bool:
    return word.text.rstrip("\"')]»”’ ").endswith(tuple(SENTENCE_ENDS))


def words_of(hypothesis: Hypothesis) -> list[Word]:
    """Return the words of a hypothesis that have any text.

    Where the engine gave no word times, words are cut at spaces (without spaces: at characters)
    and share their segment's time by their length.
    """
    return [word for segment in hypothesis.segments for word in words_in(segment)]


def words_in(segment: Segment) -> list[Word]:
    """Return the words of a segment; see `words_of`."""
    words = segment.words or _words_without_times(segment)
    return [word for word in words if word.text.strip()]


def _words_without_times(segment: Segment) -> list[Word]:
    texts = split(segment.text)
    length = sum(map(len, texts))
    words: list[Word] = []
    position = 0
    for text in texts:
        start = segment.start + (segment.end - segment.start) * position // length
        position += len(text)
        end = segment.start + (segment.end - segment.start) * position // length
        words.append(Word(text, start, end, 1.0))
    return words


def split(text: str) -> list[str]:
    """Cut a text into words that keep their leading space; joined they are the text again."""
    pieces: list[str] = []
    for character in text:
        starts_word = not pieces or (character.isspace() and not pieces[-1].isspace())
        if starts_word or (is_ideographic(character) and key(pieces[-1])):
            pieces.append(character)
        else:
            pieces[-1] += character
    return pieces


def is_ideographic(character: str) -> bool:
    """Return whether a character belongs to a script without spaces between words."""
    return (
        "\u3040" <= character <= "\u30ff"  # kana
        or "\u3400" <= character <= "\u9fff"  # Han
        or "\u0e00" <= character <= "\u0eff"  # Thai, Lao
        or "\u1000" <= character <= "\u109f"  # Myanmar
        or "\u1780" <= character <= "\u17ff"  # Khmer
    )


def fit(words: Sequence[Word], start: int, end: int) -> tuple[Word, ...]:
    """Move word times into a segment: in order, MIN_WORD_LENGTH long or more, not overlapping.

    Alignment knows a word's place to a tenth of a second, so it may reach over a segment's edge.
    """
    fitted: list[Word] = []
    room = end - start
    shortest = min(MIN_WORD_LENGTH, room // max(1, len(words)))
    for index, word in enumerate(words):
        num_left = len(words) - index
        first = max(start, min(word.start, end - num_left * shortest))
        last = max(first + shortest, min(word.end, end - (num_left - 1) * shortest))
        fitted.append(Word(word.text, first, last, word.probability))
        start = last
    return tuple(fitted)


def join(words: Sequence[Word]) -> str:
    """Join words to a text without space at its ends.

    A window's first word may come without its leading space, so one is put in between words of
    scripts that have spaces.
    """
    text = ""
    for word in words:
        piece = word.text
        if text and piece and not piece[0].isspace() and not text[-1].isspace():
            joins = is_ideographic(piece[0]) or is_ideographic(text[-1])
            if not joins and key(piece[0]):
                text += " "
        text += piece if text else piece.lstrip()
    return text.rstrip()


def follow(before: str, text: str) -> str:
    """Return a text with a space in front, where its script and the text before it ask for one.

    Follows `join`, so that the pieces put together are the text that joining all of them gives.
    """
    last = before.rstrip()[-1:]
    pieces = [Word(piece, 0, 0, 1.0) for piece in (last, text)]
    return join(pieces)[len(last) :]
