from __future__ import annotations

import numpy as np
import pytest
import torch

from engine.cuda.batch import KEEP, TILE_TOKENS, TOKEN_INTS, Row, list_sizes, pack, view_inputs


def packed(rows: list[Row], size: int) -> tuple[list[int], np.ndarray]:
    out = np.full(TOKEN_INTS * size, 77, dtype=np.int32)  # what an earlier pass left
    return pack(rows, size, out), out


def test_sizes_ascend_by_half_at_most_and_hold_what_is_asked_for() -> None:
    for most in (1, 5, 32, 33, 100, 448, 1000, 1024):
        sizes = list_sizes(most)
        assert sizes == sorted(set(sizes)) and sizes[-1] >= most
        assert all(b <= 2 * a for a, b in zip(sizes, sizes[1:], strict=False))
    assert list_sizes(1024)[-4:] == [384, 512, 768, 1024]


def test_rows_lie_one_after_another_and_the_rest_is_unused() -> None:
    rows = [Row(3, [50, 51, 52], 2, True, 40, probe=0), Row(1, [KEEP, 9], 0, False, 30)]
    firsts, out = packed(rows, 8)
    inputs = view_inputs(torch.from_numpy(out))
    assert firsts == [0, 3]
    assert inputs.rows[0].tolist() == [3, 0, 3, 2, 0, 40, 0, 0]
    assert inputs.rows[1].tolist() == [1, 3, 2, 0, KEEP, 30, -1, 0]
    assert not inputs.rows[2:].any() and not inputs.tiles[2:].any()
    assert inputs.given.tolist() == [50, 51, 52, KEEP, 9, 0, 0, 0]
    assert inputs.tiles[:2].tolist() == [[0, 0, 3, 3], [3, 3, 2, 1]]
    assert not inputs.temperatures.any()


def test_long_rows_are_cut_into_tiles_of_one_sequence_each() -> None:
    rows = [Row(0, list(range(TILE_TOKENS * 2 + 1)), 0, True, 448), Row(5, [KEEP], 0, False, 448)]
    _, out = packed(rows, 64)
    tiles = view_inputs(torch.from_numpy(out)).tiles
    assert tiles[:4].tolist() == [
        [0, 0, TILE_TOKENS, 0],
        [0, TILE_TOKENS, TILE_TOKENS, 0],
        [0, 2 * TILE_TOKENS, 1, 0],
        [33, 33, 1, 5],
    ]
    assert int((tiles[:, 2] > 0).sum()) == 4


def test_noise_goes_with_its_row() -> None:
    rows = [Row(0, [KEEP], 0, False, 9), Row(1, [1, 2], 1, True, 9, temperature=0.4, seed=77)]
    _, out = packed(rows, 4)
    inputs = view_inputs(torch.from_numpy(out))
    assert inputs.temperatures.tolist() == pytest.approx([0.0, 0.4, 0.4, 0.0])
    assert inputs.seeds.tolist() == [0, 77, 77, 0]


def test_a_step_that_does_not_fit_is_our_own_bug() -> None:
    with pytest.raises(AssertionError, match=r"\(5, 4\)"):
        packed([Row(0, [1, 2, 3, 4, 5], 0, True, 9)], 4)
