"""Sampled tokens to segments with times.

A model writes a timestamp, text, a timestamp; then the next. The last segment may lack its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from engine.api import Segment
from engine.decoding.tokenizer import TIMESTAMP_STEP, Tokenizer


@dataclass(frozen=True, slots=True)
class SegmentTokens:
    """The text tokens between two timestamps."""

    start: int  # samples from the start of the stream
    end: int
    is_open: bool  # no timestamp closed it, so it ends with the window
    places: tuple[int, ...]  # of its tokens among all that were sampled
    tokens: tuple[int, ...]  # text tokens only, at least one


def parse_segments(
    tokens: Sequence[int], tokenizer: Tokenizer, start: int, end: int
) -> list[SegmentTokens]:
    """Split what was sampled at its timestamps.

    Every text token lands in exactly one segment, in order, but for those that the model places
    after the end of the audio: there is no speech in the padding. Text before the first timestamp
    starts with the window; text that no timestamp closes ends with it. Two timestamps in a row
    are silence between segments.

    Args:
        tokens: as sampled, without the prompt; special tokens other than timestamps are left out.
        start: the window's first sample, in samples from the start of the stream.
        end: its last sample + 1.

    Returns:
        Segments that follow each other, each inside the window and at least one sample long.
    """
    segments: list[SegmentTokens] = []
    places: list[int] = []
    opened = start

    def close(closed: int, is_open: bool) -> None:
        if places and opened < end:
            text = tuple(tokens[place] for place in places)
            append(segments, SegmentTokens(opened, min(closed, end), is_open, tuple(places), text))
        places.clear()

    for place, token in enumerate(tokens):
        if token >= tokenizer.timestamp_begin:
            time = start + (token - tokenizer.timestamp_begin) * TIMESTAMP_STEP
            close(time, is_open=False)
            opened = max(time, segments[-1].end) if segments else time
        elif token < tokenizer.eot:
            places.append(place)
    close(end, is_open=True)
    return segments


def append(segments: list[SegmentTokens], segment: SegmentTokens) -> None:
    """Add a segment; one whose times run backwards, as no rule allows, joins the one before it."""
    if segment.end > segment.start:
        segments.append(segment)
    elif segments:
        last = segments[-1]
        segments[-1] = replace(
            last, places=last.places + segment.places, tokens=last.tokens + segment.tokens
        )
    else:
        segments.append(replace(segment, end=segment.start + 1))


def decode_segments(segments: Sequence[SegmentTokens], tokenizer: Tokenizer) -> tuple[Segment, ...]:
    """Write the text of segments, leaving out those that spell nothing."""
    written = (
        Segment(
            tokenizer.decode(segment.tokens),
            segment.start,
            segment.end,
            segment.is_open,
            tokens=segment.tokens,
        )
        for segment in segments
    )
    return tuple(segment for segment in written if segment.text)
