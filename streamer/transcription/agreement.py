"""Compare the words of successive hypotheses.

Words count as the same if they differ only in case or punctuation, which change with every bit of
context and are no reason to wait.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.api import SAMPLE_RATE, Word
from streamer.transcription.word import key

ANCHOR = 12  # settled words that are looked for in a new hypothesis; more only cost time
# What it costs to take one word for another, where leaving a word out costs 1. Guesses: any order
# such as "the same word a second away before another word at the same time" does.
APART = 0.1  # the same word, for each second between the two
MISREAD = 0.6  # another word at the same time
MISREAD_APART = 0.2  # ... and for each second between the two
TOO_FAR_S = 2.0  # words further apart are not the same ...
FAR = 1.2  # ... and dearer to match than to leave out
EXTRA = 0.7  # a word of the hypothesis that no settled word stands for: "the" in "close the window"
SPURIOUS = 0.5  # ... before the first anchor
FOUND = 0.6  # of the anchors' number: what an alignment may cost at most


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
    skip = 0.0 if len(settled) > ANCHOR else SPURIOUS
    costs = [skip * j for j in range(len(words) + 1)]
    for anchor in anchors:
        above = costs
        costs = [above[0] + 1.0]
        for j, word in enumerate(words):
            costs.append(
                min(above[j] + _difference(anchor, word), above[j + 1] + 1.0, costs[j] + EXTRA)
            )
    end = settled[-1].end
    ends = [words[0].start, *(word.end for word in words)]
    best = min(range(len(ends)), key=lambda j: costs[j] + abs(ends[j] - end) / SAMPLE_RATE)
    if costs[best] <= FOUND * len(anchors):
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


def behind(position: int, words: Sequence[Word]) -> list[Word]:
    """Leave out the first words as long as they end before a position."""
    count = 0
    while count < len(words) and words[count].end <= position:
        count += 1
    return list(words[count:])


def _difference(a: Word, b: Word) -> float:
    """Give the cost of taking two words for one."""
    distance_s = abs(a.start + a.end - b.start - b.end) / 2 / SAMPLE_RATE
    if distance_s > TOO_FAR_S:
        return FAR
    if key(a.text) == key(b.text):
        return APART * distance_s
    return MISREAD + MISREAD_APART * distance_s
