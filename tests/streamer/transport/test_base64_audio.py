"""Audio in base64, decoded a piece at a time."""

from __future__ import annotations

import base64

import pytest

from streamer.transport import base64_audio
from streamer.transport.base64_audio import PIECE_CHARACTERS


@pytest.mark.parametrize("num_bytes", [0, 1, 3, PIECE_CHARACTERS * 3 // 4, 2_000_001])
async def test_any_length_is_decoded(num_bytes: int) -> None:
    audio = bytes(n % 251 for n in range(num_bytes))
    assert await base64_audio.decode(base64.b64encode(audio).decode()) == audio


@pytest.mark.parametrize(
    "text",
    [
        None,
        7,
        "ab!=",
        "abc",
        "\u00e9" * 4,
        "A" * (PIECE_CHARACTERS - 2) + "==AAAA",  # padding where two pieces meet
        "A" * (PIECE_CHARACTERS + 8) + "!AAA",
    ],
    ids=lambda text: str(text)[-8:],
)
async def test_what_is_not_base64_is_refused(text: object) -> None:
    with pytest.raises(ValueError):
        await base64_audio.decode(text)
