"""From tokens to segments: what a model writes, and what it should never write."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.decoding.segments import decode_segments, parse_segments
from engine.decoding.tokenizer import Tokenizer


class SpelledTokenizer:
    """Knows 26 letters, an end token, and times in Whisper's order."""

    eot = 26
    timestamp_begin = 30

    def decode(self, tokens: Any) -> str:
        return "".join(chr(ord("a") + token) for token in tokens if token < self.eot)


@pytest.fixture
def tokenizer() -> Tokenizer:
    return SpelledTokenizer()  # type: ignore[return-value]


def at(seconds: float) -> int:
    return 30 + round(seconds / 0.02)


def spell(text: str) -> list[int]:
    return [ord(c) - ord("a") for c in text]


def parse(tokens: list[int], start: int, end: int, tokenizer: Tokenizer) -> list[Any]:
    segments = decode_segments(parse_segments(tokens, tokenizer, start, end), tokenizer)
    return [(s.text, s.start, s.end, s.is_open) for s in segments]


START = 1_000_000


def test_times_count_from_the_window_start(tokenizer: Tokenizer) -> None:
    tokens = [at(0.5), *spell("ab"), at(2), at(2), *spell("c"), at(3.5)]
    assert parse(tokens, START, START + 160_000, tokenizer) == [
        ("ab", START + 8_000, START + 32_000, False),
        ("c", START + 32_000, START + 56_000, False),
    ]


def test_open_tail_is_kept_until_the_window_end(tokenizer: Tokenizer) -> None:
    tokens = [at(0), *spell("ab"), at(1), at(1.5), *spell("cd")]
    assert parse(tokens, START, START + 90_001, tokenizer) == [
        ("ab", START, START + 16_000, False),
        ("cd", START + 24_000, START + 90_001, True),
    ]


def test_silence_between_two_timestamps_does_not_take_the_next_text(tokenizer: Tokenizer) -> None:
    tokens = [at(0), at(4), at(4), *spell("a"), at(5)]
    assert parse(tokens, 0, 160_000, tokenizer) == [("a", 64_000, 80_000, False)]


def test_text_before_the_first_timestamp_starts_with_the_window(tokenizer: Tokenizer) -> None:
    assert parse([*spell("ab"), at(1)], START, START + 32_000, tokenizer) == [
        ("ab", START, START + 16_000, False)
    ]


def test_text_without_any_timestamp_fills_the_window(tokenizer: Tokenizer) -> None:
    assert parse(spell("ab"), START, START + 7, tokenizer) == [("ab", START, START + 7, True)]


def test_an_end_after_the_audio_is_clamped(tokenizer: Tokenizer) -> None:
    tokens = [at(0), *spell("a"), at(29.98)]
    assert parse(tokens, START, START + 100, tokenizer) == [("a", START, START + 100, False)]


def test_a_segment_after_the_audio_is_dropped(tokenizer: Tokenizer) -> None:
    tokens = [at(0), *spell("a"), at(1), at(2), *spell("b"), at(9), at(9), *spell("c")]
    assert parse(tokens, 0, 32_000, tokenizer) == [("a", 0, 16_000, False)]


def test_nothing_sampled_gives_nothing(tokenizer: Tokenizer) -> None:
    for tokens in ([], [at(0)], [at(0), at(0)], [26, 27, 28]):
        assert parse(tokens, 0, 16_000, tokenizer) == []


def test_places_lead_back_to_the_sampled_tokens(tokenizer: Tokenizer) -> None:
    tokens = [at(0), *spell("ab"), at(1), at(1), *spell("c"), at(2)]
    segments = parse_segments(tokens, tokenizer, 0, 160_000)
    assert [s.places for s in segments] == [(1, 2), (5,)]


@given(
    tokens=st.lists(st.integers(0, 30 + 1500), max_size=40)
    | st.lists(st.integers(0, 60), max_size=40),
    start=st.integers(0, 10**9),
    duration=st.integers(1, 480_000),
)
@settings(max_examples=500)
def test_any_tokens_give_ordered_segments_inside_the_window(
    tokens: list[int], start: int, duration: int
) -> None:
    tokenizer: Any = SpelledTokenizer()
    end = start + duration
    segments = parse_segments(tokens, tokenizer, start, end)
    edge = start
    for segment in segments:
        assert edge <= segment.start < segment.end <= end
        assert not segment.is_open or (segment is segments[-1] and segment.end == end)
        assert segment.tokens == tuple(tokens[place] for place in segment.places)
        edge = segment.end
    places = [place for segment in segments for place in segment.places]
    assert places == sorted(set(places))
    # only text behind a timestamp at or after the end of the audio may be missing
    behind = start
    for place, token in enumerate(tokens):
        if token >= tokenizer.timestamp_begin:
            behind = start + (token - tokenizer.timestamp_begin) * 320
        elif token < tokenizer.eot and place not in places:
            assert behind >= end or any(s.end == end for s in segments)


@given(st.data())
def test_all_text_of_a_legal_sequence_is_kept(data: st.DataObject) -> None:
    """A sequence as the grammar allows it, with all times inside the audio."""
    tokenizer: Any = SpelledTokenizer()
    tokens: list[int] = []
    time = 0
    for _ in range(data.draw(st.integers(0, 5))):
        time += data.draw(st.integers(0, 50))
        tokens.append(30 + time)
        tokens += data.draw(st.lists(st.integers(0, 25), min_size=1, max_size=4))
        time += data.draw(st.integers(1, 50))
        tokens.append(30 + time)
    if data.draw(st.booleans()):
        tokens.append(30 + time)
        tokens += data.draw(st.lists(st.integers(0, 25), max_size=4))
    segments = parse_segments(tokens, tokenizer, 5, 5 + (time + 1) * 320)
    text = "".join(s.text for s in decode_segments(segments, tokenizer))
    assert text == tokenizer.decode(tokens)
