from __future__ import annotations

import pytest

from engine.decoding.repetition import compression_ratio, find_loop


def test_repeated_text_compresses_well() -> None:
    assert compression_ratio(" Thank you." * 40) > 2.4
    assert compression_ratio(" We hold these truths to be self-evident, all men are equal.") < 2.4
    assert compression_ratio("") == 0


T = 1000  # where times begin


def test_a_loop_is_found_and_its_first_round_kept() -> None:
    text = [1, 2, 3, 4]
    assert find_loop(text + [5, 6] * 16, T) == 6
    assert find_loop(text + [9] * 32, T) == 5
    assert find_loop(text + list(range(10, 30)) * 4, T) == 24
    assert find_loop(text + [5, 6] * 16 + [5], T) == 6  # a broken last round


def test_advancing_times_do_not_hide_a_loop() -> None:
    tokens = [1, 2]
    for n in range(12):
        tokens += [T + 2 * n, 5, 6, 7, T + 2 * n + 1]
    # the first round ends before its closing timestamp
    assert find_loop(tokens, T) == 6


@pytest.mark.parametrize(
    "tokens",
    [
        [],
        [1],
        [1, 2, 3],
        [4] * 8,  # a telephone number of eights
        [4, 5] * 6,  # "no, no, no, ..."
        list(range(100)),
        list(range(20)) * 3,  # a refrain sung three times
        [4] * 40 + [1, 2, 3],  # over already
    ],
)
def test_emphasis_is_no_loop(tokens: list[int]) -> None:
    assert find_loop(tokens, T) is None
