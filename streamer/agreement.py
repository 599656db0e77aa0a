"""Compare the words of successive hypotheses.

Words count as the same if they differ only in case or punctuation, which change with every bit of
context and are no reason to wait.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from engine.api import Hypothesis, Segment, Word

ANCHOR = 12  # settled words that are looked for in a new hypothesis; more only cost time
SENTENCE_ENDS = ".?!…。？！"


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
    """List the words of a hypothesis that have something to say.

    Where the engine gave no word times, words are cut at spaces (without spaces: at characters)
    and share their segment's time by their length.
    """
    words: list[Word] = []
    for segment in hypothesis.segments:
        words += words_in(segment)
    return [word for word in words if word.text.strip()]


def words_in(segment: Segment) -> Sequence[Word]:
    """List the words of a segment; see `words_of`."""
    if segment.words:
        return segment.words
    texts = split(segment.text)
    length = sum(map(len, texts))
    words, position = [], 0
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
    """Tell whether a character belongs to a script that writes no spaces between words."""
    return (
        "\u3040" <= character <= "\u30ff"  # kana
        or "\u3400" <= character <= "\u9fff"  # Han
        or "\u0e00" <= character <= "\u0eff"  # Thai, Lao
        or "\u1000" <= character <= "\u109f"  # Myanmar
        or "\u1780" <= character <= "\u17ff"  # Khmer
    )


def num_agreed(older: Sequence[Word], newer: Sequence[Word]) -> int:
    """Count the words at the start of `newer` that `older` has as well."""
    count = 0
    for a, b in zip(older, newer, strict=False):
        if key(a.text) != key(b.text):
            break
        count += 1
    return count


def num_covered(settled: Sequence[Word], words: Sequence[Word]) -> int:
    """Count the words at the start of a hypothesis that say again what is settled.

    Settled words never change, so a hypothesis that reads them differently is aligned with them,
    by text and by time, and only what follows is new.

    Args:
        settled: the settled words inside the window, in order.
        words: the hypothesis of the window.
    """
    if not settled or not words:
        return 0
    if len(settled) <= len(words) and num_agreed(settled, words) == len(settled):
        return len(settled)
    anchors = settled[-ANCHOR:]
    # costs[j]: of explaining the anchors so far by the words up to j; where the anchors begin in
    # the hypothesis is free if there are settled words before them
    skip = 0.0 if len(settled) > ANCHOR else 0.5
    costs = [skip * j for j in range(len(words) + 1)]
    for anchor in anchors:
        above = costs
        costs = [above[0] + 1.0]
        for j, word in enumerate(words):
            costs.append(
                min(above[j] + _difference(anchor, word), above[j + 1] + 1.0, costs[j] + 1.0)
            )
    end = settled[-1].end
    best = min(
        range(len(words) + 1),
        key=lambda j: costs[j] + abs((words[j - 1].end if j else words[0].start) - end) / 16_000,
    )
    if costs[best] <= 0.6 * len(anchors):
        return best
    # another text altogether: only the times are left to go by
    return sum(word.start + word.end < 2 * end for word in words)


def uncovered(settled: Sequence[Word], words: Sequence[Word]) -> list[Word]:
    """Return what a hypothesis says beyond the settled words, see `num_covered`.

    Digits are written one by one in one hypothesis and as one number in the next. A number that
    begins with settled digits is cut behind them.
    """
    count = num_covered(settled, words)
    tail = list(words[count:])
    num_left = len(settled) - count  # settled words that no word of the hypothesis stands for
    if num_left < 1 or not tail:
        return tail
    first, said = tail[0], "".join(key(word.text) for word in settled[-num_left:])
    if not said.isdigit() or not key(first.text).startswith(said):
        return tail
    rest = first.text
    while len(key(rest)) > len(key(first.text)) - len(said):
        rest = rest[1:]
    if not key(rest):
        return tail[1:]
    start = min(max(first.start, settled[-1].end), first.end - 1)
    return [Word(" " + rest.lstrip(" ,.-"), start, first.end, first.probability), *tail[1:]]


def _difference(a: Word, b: Word) -> float:
    """Cost of taking two words for one: 0 for the same, up to 1.2 for others far apart in time."""
    distance = abs(a.start + a.end - b.start - b.end) / 2 / 16_000
    if distance > 2.0:
        return 1.2
    if key(a.text) == key(b.text):
        return 0.1 * distance
    return 0.6 + 0.2 * distance
