"""Windows as a live session sends them: they grow with the audio, and slide when they are long."""

from __future__ import annotations

from collections.abc import Iterator

from engine.api import SAMPLE_RATE, Samples, Window

LONGEST = 12 * SAMPLE_RATE  # then the window begins later
SLIDE = 6 * SAMPLE_RATE + 5_000  # by so much, which is no whole number of timestamp steps


def grow(audio: Samples, step: int = SAMPLE_RATE) -> Iterator[Window]:
    """Cut a recording into the windows of one stream, in order.

    Args:
        audio: (T,) of the whole recording.
        step: audio that arrives between two windows.
    """
    start = 0
    end = 0
    while end < len(audio):
        end = min(end + step, len(audio))
        if end - start > LONGEST:
            start += SLIDE
        yield Window(start, audio[start:end])
