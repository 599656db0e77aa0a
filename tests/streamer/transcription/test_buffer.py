"""Audio by absolute sample."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamer.transcription.buffer import MIN_CAPACITY, AudioBuffer


@given(st.lists(st.tuples(st.integers(0, 50_000), st.integers(0, 60_000)), max_size=12))
def test_any_part_that_is_held_reads_back(steps: list[tuple[int, int]]) -> None:
    buffer = AudioBuffer()
    for added, dropped in steps:
        buffer.append(np.arange(buffer.end, buffer.end + added, dtype=np.float32))
        buffer.drop_before(buffer.start + dropped)
        assert 0 <= buffer.start <= buffer.end
        samples = buffer.read(buffer.start, buffer.end)
        np.testing.assert_array_equal(samples, np.arange(buffer.start, buffer.end))


def test_what_is_read_does_not_change_later() -> None:
    buffer = AudioBuffer()
    buffer.append(np.ones(100, np.float32))
    samples = buffer.read(0, 100)
    buffer.drop_before(100)
    buffer.append(np.zeros(MIN_CAPACITY, np.float32))
    assert samples.sum() == 100


def test_an_hour_of_sound_leaves_no_more_than_is_held() -> None:
    buffer = AudioBuffer()
    second = np.zeros(16_000, np.float32)
    for _ in range(3600):
        buffer.append(second)
        buffer.drop_before(buffer.end - 32_000)
    assert buffer._data.nbytes <= 4 * 4 * 3 * 16_000


def test_memory_shrinks_when_a_long_segment_is_over() -> None:
    buffer = AudioBuffer()
    buffer.append(np.zeros(30 * 16_000, np.float32))
    buffer.drop_before(buffer.end - 1000)
    assert buffer._data.nbytes == 4 * MIN_CAPACITY
