from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model.folded_tail import choose_positions


def test_full_keeps_every_position() -> None:
    kept = choose_positions(16_000, factor=None, margin=50)
    assert kept.positions().tolist() == list(range(1500))
    assert kept.num_folded == 0


@given(st.integers(1, 480_000), st.sampled_from([2, 10, 25, 100]), st.integers(0, 200))
def test_every_position_is_counted_once(num_samples: int, factor: int, margin: int) -> None:
    kept = choose_positions(num_samples, factor=factor, margin=margin)
    assert kept.num_full + kept.num_folded * kept.weight == 1500
    positions = kept.positions().tolist()
    assert len(positions) == kept.num_positions
    assert positions == sorted(set(positions))
    assert 0 <= positions[0] and positions[-1] < 1500


@given(st.integers(1, 480_000))
def test_audio_and_margin_stay_at_full_resolution(num_samples: int) -> None:
    kept = choose_positions(num_samples, factor=25, margin=50)
    assert kept.num_full >= min(1500, num_samples / 320 + 50)


@pytest.mark.parametrize("seconds", [28, 29.99, 30])
def test_a_window_without_silence_is_full(seconds: float) -> None:
    kept = choose_positions(int(seconds * 16_000), factor=100, margin=50)
    assert kept.num_positions == 1500 and kept.weight == 1
