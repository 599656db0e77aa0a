"""Compare the words of successive hypotheses.

Words count as the same if they differ only in case or punctuation, which change with every bit of
context and are not worth waiting for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.api import SAMPLE_RATE, Word
from streamer.transcription.word import key

MAX_NUM_ANCHORS = 12  # settled words looked for in a new hypothesis; more only take time


@dataclass(frozen=True, slots=True)
class AlignmentCosts:
    """What the steps of an alignment cost, where leaving out a settled word costs 1.

    Guesses: all that counts is their order, such as that the same word a second away is a better
    match than another word at the same time.
    """

    same_word_per_s: float = 0.1  # the same word, for each second between the two
    other_word: float = 0.6  # another word at the same time
    other_word_per_s: float = 0.2  # and for each second between the two
    max_distance_s: float = 2.0  # words further apart are not matched:
    too_far: float = 1.2  # matching them costs more than leaving one out
    extra_word: float = 0.7  # a word that no settled word stands for: "the" in "close the window"
    extra_word_before: float = 0.5  # the same before the first anchor
    max_per_anchor: float = 0.6  # of a whole alignment; a dearer one is another text altogether

    def of_match(self, a: Word, b: Word) -> float:
        """Return the cost of taking two words for one."""
        distance_s = abs(a.start + a.end - b.start - b.end) / 2 / SAMPLE_RATE
        if distance_s > self.max_distance_s:
            return self.too_far
        if key(a.text) == key(b.text):
            return self.same_word_per_s * distance_s
        return self.other_word + self.other_word_per_s * distance_s


COSTS = AlignmentCosts()


def num_agreed(older: Sequence[Word], newer: Sequence[Word]) -> int:
    """Count the words at the start of `newer` that `older` has as well."""
    count = 0
    for a, b in zip(older, newer, strict=False):
        if key(a.text) != key(b.text):
            break
        count += 1
    return count


def num_covered(settled: Sequence[Word], words: Sequence[Word]) -> int:
    """Count the words at the start of a hypothesis that repeat what is settled.

    Settled words never change, so a hypothesis that spells them differently is aligned with them,
    by text and by time, and only what follows is new.

    Args:
        settled: the settled words inside the window, in order.
        words: the hypothesis of the window.
    """
    if not settled or not words:
        return 0
    if len(settled) <= len(words) and num_agreed(settled, words) == len(settled):
        return len(settled)
    anchors = settled[-MAX_NUM_ANCHORS:]
    # costs[j]: of explaining the anchors so far by the words up to j; where the anchors begin in
    # the hypothesis is free if there are settled words before them
    skip = 0.0 if len(settled) > MAX_NUM_ANCHORS else COSTS.extra_word_before
    costs = [skip * j for j in range(len(words) + 1)]
    for anchor in anchors:
        above = costs
        costs = [above[0] + 1.0]
        for j, word in enumerate(words):
            matched = above[j] + COSTS.of_match(anchor, word)
            costs.append(min(matched, above[j + 1] + 1.0, costs[j] + COSTS.extra_word))
    end = settled[-1].end
    ends = [words[0].start, *(word.end for word in words)]
    best = min(range(len(ends)), key=lambda j: costs[j] + abs(ends[j] - end) / SAMPLE_RATE)
    if costs[best] <= COSTS.max_per_anchor * len(anchors):
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
    """Return the words without the first ones that end before a position."""
    count = 0
    while count < len(words) and words[count].end <= position:
        count += 1
    return list(words[count:])
