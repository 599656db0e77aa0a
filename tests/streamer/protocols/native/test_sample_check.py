from __future__ import annotations

import numpy as np
import pytest

from streamer.protocol import Start
from streamer.protocols.native.sample_check import SampleCheck


def test_samples_that_are_no_numbers_are_told_across_packets() -> None:
    check = SampleCheck(Start(encoding="pcm_f32le"))
    data = np.array([0.5, np.nan, -np.inf, 0.0], "<f4").tobytes()
    errors = [check.take(data[i : i + 3]) for i in range(0, len(data), 3)]
    assert [error.code for error in errors if error] == ["repaired_audio"] * 2
    assert check.is_float and check.finish(len(data)) is None


@pytest.mark.parametrize(
    ("encoding", "channels", "num_bytes", "rest"),
    [
        ("pcm_s16le", 1, 3, 1),
        ("pcm_s16le", 2, 6, 2),
        ("pcm_f32le", 1, 6, 2),
        ("mulaw", 1, 3, 0),
        ("container", 2, 3, 0),
    ],
)
def test_a_cut_sample_is_told_at_the_end(
    encoding: str, channels: int, num_bytes: int, rest: int
) -> None:
    check = SampleCheck(Start(encoding=encoding, channels=channels))  # type: ignore[arg-type]
    error = check.finish(num_bytes)
    assert (error is None) if rest == 0 else (error and f"last {rest} are" in error.message)
