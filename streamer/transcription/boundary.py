"""Find the window boundary: between two words, at the quietest point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.api import Word
from streamer.transcription.buffer import AudioBuffer
from streamer.transcription.word import is_sentence_end

NUM_OVERLAP_WORDS = 2  # settled words kept in a window that starts within a sentence, to align by
WORD_TIME_TOLERANCE = 1_600  # 0.1 s: word times are no better
ENERGY_BLOCK_LENGTH = 320  # 20 ms: the stretch whose energy is compared
MIN_SENTENCE_GAP = 6_400  # 0.4 s between two words is as good as the end of a sentence


@dataclass(frozen=True, slots=True)
class Boundary:
    """A gap between two words."""

    num_words: int  # before it
    start: int  # where the gap may begin
    end: int  # where it may end


def first_boundary(words: Sequence[Word], position: int) -> Boundary | None:
    """Find the first boundary between sentences behind a position; None if there is none."""
    for index in range(1, len(words)):
        if words[index].start >= position and _is_apart(words[index - 1], words[index]):
            return _boundary(words[index - 1], words[index], index)
    return None


def best_boundary(
    anchors: Sequence[Word], volatile: Sequence[Word], position: int, *, is_sentence_wanted: bool
) -> Boundary | None:
    """Choose the boundary behind a settled word at which to begin the next window.

    A boundary between sentences is best: the first behind `position`, so that some context remains,
    or else the last before it. Within a sentence the widest gap is taken, and NUM_OVERLAP_WORDS
    settled words stay behind it.

    Args:
        anchors: settled words of the window.
        volatile: the words after them.
        position: samples from the start of the stream.
        is_sentence_wanted: only take a boundary between sentences.
    """
    words = [*anchors, *volatile[:1]]
    boundary = first_boundary(words, position)
    if boundary is not None:
        return boundary
    for index in range(len(words) - 1, 0, -1):
        if _is_apart(words[index - 1], words[index]):
            return _boundary(words[index - 1], words[index], index)
    if is_sentence_wanted:
        return None
    candidates = range(
        max(1, (len(anchors) - NUM_OVERLAP_WORDS) // 2), len(anchors) - NUM_OVERLAP_WORDS + 1
    )
    if not candidates:
        return None
    best = max(candidates, key=lambda i: (words[i].start - words[i - 1].end, i))
    return _boundary(words[best - 1], words[best], best)


def _is_apart(before: Word, after: Word) -> bool:
    return is_sentence_end(before) or after.start - before.end >= MIN_SENTENCE_GAP


def _boundary(before: Word, after: Word, num_words: int) -> Boundary:
    start, end = min(before.end, after.start), max(before.end, after.start)
    return Boundary(num_words, start - WORD_TIME_TOLERANCE, end + WORD_TIME_TOLERANCE)


def quietest(buffer: AudioBuffer, start: int, end: int) -> int:
    """Return the middle of the quietest block between two positions, clamped to what is held."""
    start, end = max(start, buffer.start), min(end, buffer.end)
    num_grains = (end - start) // ENERGY_BLOCK_LENGTH
    if num_grains < 1:
        return (start + end) // 2
    grains = buffer.read(start, start + num_grains * ENERGY_BLOCK_LENGTH).reshape(
        num_grains, ENERGY_BLOCK_LENGTH
    )
    energy = np.square(grains).sum(axis=1)
    return start + int(energy.argmin()) * ENERGY_BLOCK_LENGTH + ENERGY_BLOCK_LENGTH // 2
