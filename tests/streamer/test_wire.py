"""What every protocol needs on its wire."""

from __future__ import annotations

import pytest

from streamer import wire
from streamer.wire import ClientFault


@pytest.mark.parametrize(
    "text",
    ['{"a":1,"a":2}', '{"a":NaN}', '{"a":-Infinity}', "[" * 100_000, "", '{"a":', "1e999"],
    ids=lambda text: text[:12],
)
def test_what_is_not_strict_json_is_refused(text: str) -> None:
    with pytest.raises(ClientFault):
        wire.parse_object(text)


def test_times_are_seconds_rounded_to_a_millisecond() -> None:
    assert [wire.seconds(samples) for samples in (0, 7, 16_008, 24_000)] == [0.0, 0.0, 1.0, 1.5]
