"""What every protocol needs on its wire."""

from __future__ import annotations

import json

import pytest

from streamer import wire
from streamer.wire import ClientFault


@pytest.mark.parametrize(
    "text",
    [
        '{"a":1,"a":2}',
        '{"a":NaN}',
        '{"a":-Infinity}',
        "[" * 100_000,
        "",
        '{"a":',
        "1e999",
        '{"a":-1e999}',
    ],
    ids=lambda text: text[:12],
)
def test_what_is_not_strict_json_is_refused(text: str) -> None:
    with pytest.raises(ClientFault):
        wire.parse_object(text)


def test_halves_of_surrogate_pairs_are_replaced_and_whole_ones_are_kept() -> None:
    text = r'{"\ude00": "\ud83d\ude00", "a": ["\\ud83d\ude00", "\ud83d", "\ude00\ud83d"]}'
    values = wire.parse_object(text)
    assert values == {
        "\ufffd": "\U0001f600",
        "a": ["\\ud83d\ufffd", "\ufffd", "\ufffd\ufffd"],
    }
    json.dumps(values, ensure_ascii=False).encode()


def test_nesting_is_bounded_before_anything_walks_it() -> None:
    most = wire.MAX_DEPTH
    for opening, closing in ("[", "]"), ('{"a":', "}"):
        inner = opening * (most - 1) + "1" + closing * (most - 1)
        assert wire.parse_object('{"a":' + inner + "}")
        for depth in (most, 970, 976, 100_000):
            text = '{"a":' + opening * depth + "1" + closing * depth + "}"
            with pytest.raises(ClientFault, match="nesting"):
                wire.parse_object(text, None)


def test_a_long_list_is_refused_before_it_is_read() -> None:
    text = '{"audio":[' + "1," * 50_000 + "1]}"
    for message in (text, text.encode()):
        with pytest.raises(ClientFault, match="JSON object of one long string, got 50001"):
            wire.parse_object(message, None)


def test_a_long_string_of_audio_is_read() -> None:
    audio = "ab+/" * 100_000
    assert wire.parse_object(json.dumps({"audio": audio}), None) == {"audio": audio}


def test_times_are_seconds_rounded_to_a_millisecond() -> None:
    assert [wire.seconds(samples) for samples in (0, 7, 16_008, 24_000)] == [0.0, 0.0, 1.0, 1.5]
