from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model.folded_tail import measure_extent


def test_full_keeps_every_position() -> None:
    extent = measure_extent(16_000, factor=None, margin=50)
    assert extent.positions().tolist() == list(range(1500))
    assert extent.num_folded == 0


@given(st.integers(1, 480_000), st.sampled_from([2, 10, 25, 100]), st.integers(0, 200))
def test_every_position_is_counted_once(num_samples: int, factor: int, margin: int) -> None:
    extent = measure_extent(num_samples, factor=factor, margin=margin)
    assert extent.num_full + extent.num_folded * extent.weight == 1500
    positions = extent.positions().tolist()
    assert len(positions) == extent.num_positions
    assert positions == sorted(set(positions))
    assert 0 <= positions[0] and positions[-1] < 1500


@given(st.integers(1, 480_000))
def test_sound_and_margin_stay_at_full_resolution(num_samples: int) -> None:
    extent = measure_extent(num_samples, factor=25, margin=50)
    assert extent.num_full >= min(1500, num_samples / 320 + 50)


@pytest.mark.parametrize("seconds", [28, 29.99, 30])
def test_a_window_without_silence_is_full(seconds: float) -> None:
    extent = measure_extent(int(seconds * 16_000), factor=100, margin=50)
    assert extent.num_positions == 1500 and extent.weight == 1
