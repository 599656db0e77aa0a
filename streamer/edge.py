"""Find where a window may begin anew: between two words, at the quietest point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.api import Word
from streamer.agreement import is_sentence_end
from streamer.buffer import AudioBuffer

KEPT = 2  # settled words kept inside a window that starts within a sentence, to find the seam by
SLACK = 1_600  # 0.1 s: word times are no better
GRAIN = 320  # 20 ms: the stretch whose energy is compared


@dataclass(frozen=True, slots=True)
class Edge:
    """A gap between two words."""

    num_words: int  # settled words before it
    start: int  # where the gap may begin
    end: int  # where it may end


def best_edge(
    anchors: Sequence[Word], volatile: Sequence[Word], *, is_sentence_wanted: bool
) -> Edge | None:
    """Choose the edge behind a settled word at which to begin the next window.

    The end of the last settled sentence is best: nothing before it helps with what follows. Within
    a sentence the widest gap is taken, and KEPT settled words stay behind it.

    Args:
        anchors: settled words of the window.
        volatile: the words after them.
        is_sentence_wanted: only take the end of a sentence.
    """
    if not anchors:
        return None
    following = [*anchors[1:], *volatile[:1]]
    for index in range(len(following) - 1, -1, -1):
        if is_sentence_end(anchors[index]):
            return _edge(anchors[index], following[index], index + 1)
    if is_sentence_wanted:
        return None
    candidates = range(max(0, len(anchors) - KEPT) // 2, len(anchors) - KEPT)
    if not candidates:
        return None
    best = max(candidates, key=lambda i: (following[i].start - anchors[i].end, i))
    return _edge(anchors[best], following[best], best + 1)


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
