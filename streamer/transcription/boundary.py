"""Find where a window may begin anew: between two words, at the quietest point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.api import Word
from streamer.transcription.buffer import AudioBuffer
from streamer.transcription.word import is_sentence_end

KEPT = 2  # settled words kept inside a window that starts within a sentence, to find the seam by
SLACK = 1_600  # 0.1 s: word times are no better
GRAIN = 320  # 20 ms: the stretch whose energy is compared
GAP = 6_400  # 0.4 s between two words is as good as the end of a sentence


@dataclass(frozen=True, slots=True)
class Edge:
    """A gap between two words."""

    num_words: int  # before it
    start: int  # where the gap may begin
    end: int  # where it may end


def first_edge(words: Sequence[Word], position: int) -> Edge | None:
    """Find the first edge between sentences behind a position; None if there is none."""
    for index in range(1, len(words)):
        if words[index].start >= position and _is_apart(words[index - 1], words[index]):
            return _edge(words[index - 1], words[index], index)
    return None


def best_edge(
    anchors: Sequence[Word], volatile: Sequence[Word], position: int, *, is_sentence_wanted: bool
) -> Edge | None:
    """Choose the edge behind a settled word at which to begin the next window.

    An edge between sentences is best: the first behind `position`, so that some context remains, or
    else the last before it. Within a sentence the widest gap is taken, and KEPT settled words stay
    behind it.

    Args:
        anchors: settled words of the window.
        volatile: the words after them.
        position: samples from the start of the stream.
        is_sentence_wanted: only take an edge between sentences.
    """
    words = [*anchors, *volatile[:1]]
    edge = first_edge(words, position)
    if edge is not None:
        return edge
    for index in range(len(words) - 1, 0, -1):
        if _is_apart(words[index - 1], words[index]):
            return _edge(words[index - 1], words[index], index)
    if is_sentence_wanted:
        return None
    candidates = range(max(1, (len(anchors) - KEPT) // 2), len(anchors) - KEPT + 1)
    if not candidates:
        return None
    best = max(candidates, key=lambda i: (words[i].start - words[i - 1].end, i))
    return _edge(words[best - 1], words[best], best)


def _is_apart(before: Word, after: Word) -> bool:
    return is_sentence_end(before) or after.start - before.end >= GAP


def _edge(before: Word, after: Word, num_words: int) -> Edge:
    start, end = min(before.end, after.start), max(before.end, after.start)
    return Edge(num_words, start - SLACK, end + SLACK)


def quietest(buffer: AudioBuffer, start: int, end: int) -> int:
    """Return the middle of the quietest GRAIN between two positions, clamped to what is held."""
    start, end = max(start, buffer.start), min(end, buffer.end)
    num_grains = (end - start) // GRAIN
    if num_grains < 1:
        return (start + end) // 2
    grains = buffer.read(start, start + num_grains * GRAIN).reshape(num_grains, GRAIN)
    energy = np.square(grains).sum(axis=1)
    return start + int(energy.argmin()) * GRAIN + GRAIN // 2
