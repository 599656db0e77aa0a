"""Recordings cut into windows."""

from __future__ import annotations

import numpy as np
import pytest

from engine.api import MAX_WINDOW, SAMPLE_RATE, Samples
from streamer.recording.chunk import CUT_OVERLAP, MAX_GAP_LENGTH, Chunk, Chunker
from streamer.transcription.settings import SessionSettings
from tests.support.timeline import timeline


def cut(samples: Samples, size: int = 4000) -> list[Chunk]:
    chunker = Chunker(SessionSettings())
    chunks = []
    for first in range(0, len(samples), size):
        chunks += chunker.receive(samples[first : first + size])
        assert len(chunker._buffer) <= MAX_WINDOW + 3 * SAMPLE_RATE
    return chunks + chunker.end()


def test_stretches_of_speech_share_a_window() -> None:
    talk = timeline([5, 5, 5], [0.8, 0.8, 0.8])
    (chunk,) = cut(talk.samples)
    assert chunk.start < talk.words[0].start
    assert chunk.start + len(chunk.audio) > talk.words[-1].end
    assert chunk.cut is None and not chunk.follows_cut


def test_a_long_silence_is_in_no_window() -> None:
    talk = timeline([5, 5], [5.0, 1.0])
    first, second = cut(talk.samples)
    assert second.start - (first.start + len(first.audio)) > MAX_GAP_LENGTH


def test_a_stretch_that_is_too_long_is_cut_with_sound_on_both_sides() -> None:
    talk = timeline([180], [1.0], gap_s=0.05)
    chunks = cut(talk.samples)
    assert len(chunks) >= 3
    for before, after in zip(chunks, chunks[1:], strict=False):
        assert before.cut is not None and after.follows_cut
        assert before.cut - after.start == CUT_OVERLAP
        assert before.start + len(before.audio) - before.cut == CUT_OVERLAP
        # the cut lies between two words
        assert not any(word.start + 400 < before.cut < word.end - 400 for word in talk.words)
    assert all(len(chunk.audio) <= MAX_WINDOW for chunk in chunks)


@pytest.mark.parametrize("size", [777, 16_000, 1 << 22])
def test_the_size_of_blocks_changes_nothing(size: int) -> None:
    talk = timeline([5, 40, 3], [0.5, 3.0, 0.2])
    expected = [(c.start, len(c.audio), c.cut) for c in cut(talk.samples)]
    chunker = Chunker(SessionSettings())
    chunks = [
        chunk
        for first in range(0, len(talk.samples), size)
        for chunk in chunker.receive(talk.samples[first : first + size])
    ] + chunker.end()
    assert [(c.start, len(c.audio), c.cut) for c in chunks] == expected


def test_silence_has_no_windows() -> None:
    assert cut(np.zeros(60 * SAMPLE_RATE, np.float32)) == []
