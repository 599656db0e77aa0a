"""Detect repetition: in tokens while decoding, or by compression ratio afterwards."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

# A loop is the same tokens this many times over, and at least this many tokens of it: people do
# say "no, no, no, no", or the same digit eight times.
MIN_LOOP_REPEATS = 4
MIN_LOOP_TOKENS = 32


def compression_ratio(text: str) -> float:
    """Return a text's compression ratio; above 2.4 it repeats itself (whisper/utils.py)."""
    data = text.encode()
    return len(data) / len(zlib.compress(data)) if data else 0.0


def find_loop(tokens: Sequence[int], timestamp_begin: int) -> int | None:
    """Find where a sequence began to repeat itself, if it ends in a loop.

    Timestamps do not count: a loop of text goes on while they advance.

    Returns:
        The number of tokens to keep, all up to the end of the first repetition, or None.
    """
    text = [token for token in tokens if token < timestamp_begin]
    for period in range(1, len(text) // MIN_LOOP_REPEATS + 1):
        if text[-1] != text[-1 - period]:
            continue
        length = max(MIN_LOOP_REPEATS * period, MIN_LOOP_TOKENS)
        if length > len(text) or text[-length:-period] != text[-(length - period) :]:
            continue
        while length < len(text) and text[-length - 1] == text[-length - 1 + period]:
            length += 1
        kept = len(text) - length + period
        places = [place for place, token in enumerate(tokens) if token < timestamp_begin]
        return places[kept - 1] + 1
    return None
