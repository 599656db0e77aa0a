"""The tables of mu-law and A-law: an amplitude for each code, by ITU-T G.711."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def _mulaw_table() -> npt.NDArray[np.float32]:
    """(256,) amplitudes of the mu-law codes, by ITU-T G.711."""
    code = ~np.arange(256, dtype=np.uint8)
    exponent, mantissa = (code >> 4) & 7, code & 15
    magnitude = (((mantissa.astype(np.int32) << 3) + 132) << exponent) - 132
    return (np.where(code & 128, -magnitude, magnitude) / 32768).astype(np.float32)


def _alaw_table() -> npt.NDArray[np.float32]:
    """(256,) amplitudes of the A-law codes, by ITU-T G.711."""
    code = np.arange(256, dtype=np.uint8) ^ 0x55
    exponent, mantissa = ((code >> 4) & 7).astype(np.int32), (code & 15).astype(np.int32)
    first = (mantissa << 4) + 8  # the lowest step is linear
    magnitude = np.where(exponent > 0, (first + 256) << np.maximum(exponent - 1, 0), first)
    return (np.where(code & 128, magnitude, -magnitude) / 32768).astype(np.float32)


MULAW = _mulaw_table()
ALAW = _alaw_table()
