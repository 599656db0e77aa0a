from __future__ import annotations

import pytest

from streamer.seam import follow


@pytest.mark.parametrize(
    ("before", "text", "added"),
    [
        ("", " Hello.", "Hello."),
        ("Hello.", "You there?", " You there?"),
        ("Hello. ", " You there?", " You there?"),
        ("Hello", ", you", ", you"),
        ("你好。", "世界", "世界"),
        ("Hello.", "", ""),
    ],
)
def test_pieces_put_together_read_as_one_text(before: str, text: str, added: str) -> None:
    assert follow(before, text) == added
