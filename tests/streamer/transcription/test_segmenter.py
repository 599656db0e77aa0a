"""Verdicts to points."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamer.transcription.segmenter import (
    CHECKPOINT_INTERVAL,
    LONG_PAUSE_LENGTH,
    PAUSE_LENGTH,
    Checkpoint,
    Closed,
    DecodePoint,
    Opened,
    Paused,
    Segmenter,
    SpeechResumed,
)
from streamer.transcription.settings import Endpointing, SessionSettings
from streamer.vad.detector import FRAME

SILENCE = SessionSettings().silence


def points(
    verdicts: str, settings: SessionSettings | None = None, *, close: bool = False
) -> list[DecodePoint]:
    """Segment frames given as text, "x" voiced and "." not."""
    segmenter = Segmenter(settings or SessionSettings())
    found: list[DecodePoint] = []
    for verdict in verdicts:
        found += segmenter.accept(verdict == "x")
    if close:
        found += segmenter.close(len(verdicts) * FRAME)
    return found


def test_silence_opens_nothing() -> None:
    assert points("." * 500, close=True) == []


def test_a_click_opens_nothing() -> None:
    assert points("...x....xx......x..", close=True) == []


def test_a_segment_starts_before_its_first_voiced_frame() -> None:
    settings = SessionSettings(pre_roll_ms=100)
    assert points("." * 20 + "xxx", settings) == [Opened(20 * FRAME - 1600)]
    assert points("xxx", settings) == [Opened(0)]


def test_a_pause_is_marked_and_then_ends_the_segment() -> None:
    _, pause, closed = points("x" * 10 + "." * 40)
    assert pause == Checkpoint(10 * FRAME + PAUSE_LENGTH, is_pause=True)
    assert closed == Closed(pause.end, 10 * FRAME, has_speech=True)


def test_speech_goes_on_after_a_short_pause() -> None:
    num_paused = PAUSE_LENGTH // FRAME + 1
    found = points("x" * 10 + "." * num_paused + "x" * 10 + "." * 40)
    pauses = [point for point in found if isinstance(point, Checkpoint) and point.is_pause]
    assert len(pauses) == 2
    assert [type(point) for point in found].count(Opened) == 1
    assert isinstance(found[-1], Closed)
    assert found[-1].speech_end == (20 + num_paused) * FRAME


def test_a_click_in_a_pause_does_not_prolong_the_segment() -> None:
    quiet = points("x" * 10 + "." * 40)
    assert points("x" * 10 + "." * 12 + "x" + "." * 27) == quiet


def test_talk_is_marked_at_steps() -> None:
    steps = points("x" * 200)[1:]
    ends = [point.end for point in steps if isinstance(point, Checkpoint)]
    assert len(ends) == len(steps) > 5
    assert all(
        CHECKPOINT_INTERVAL <= b - a < CHECKPOINT_INTERVAL + FRAME
        for a, b in zip(ends, ends[1:], strict=False)
    )


def test_the_pre_roll_does_not_reach_into_the_segment_before() -> None:
    settings = SessionSettings(silence_ms=100, pre_roll_ms=2000)
    found = points("x" * 10 + "." * 6 + "x" * 10, settings)
    (closed,) = (point for point in found if isinstance(point, Closed))
    assert found[-1] == Opened(closed.end)


def test_closing_ends_the_segment_at_the_last_sample() -> None:
    segmenter = Segmenter(SessionSettings())
    for _ in range(10):
        segmenter.accept(True)
    assert segmenter.close(10 * FRAME + 77) == [Closed(10 * FRAME + 77, 10 * FRAME, True)]
    assert segmenter.close(10 * FRAME + 77) == []


def test_a_manual_segment_rests_and_resumes_until_it_is_closed() -> None:
    settings = SessionSettings(endpointing=Endpointing.MANUAL)
    found = points("x" * 10 + "." * 100 + "x" * 10, settings, close=True)
    kinds = [type(point) for point in found]
    assert kinds == [Opened, Checkpoint, Paused, SpeechResumed, Closed]


def test_a_manual_segment_without_speech_is_closed_too() -> None:
    settings = SessionSettings(endpointing=Endpointing.MANUAL)
    assert points("." * 10, settings, close=True) == [
        Closed(10 * FRAME, 10 * FRAME, has_speech=False)
    ]


def test_a_long_silence_setting_rests_before_it_closes() -> None:
    settings = SessionSettings(silence_ms=3000)
    found = points("x" * 10 + "." * 120, settings)
    assert [type(point) for point in found] == [Opened, Checkpoint, Paused, Closed]
    assert isinstance(found[-1], Closed) and isinstance(found[-2], Paused)
    assert found[-1].end == found[-2].end < 10 * FRAME + LONG_PAUSE_LENGTH


@given(
    st.lists(st.tuples(st.booleans(), st.integers(1, 60)), max_size=20),
    st.sampled_from([100, 300, 500, 2000]),
    st.sampled_from(list(Endpointing)),
)
def test_windows_never_overlap_and_grow(
    runs: list[tuple[bool, int]], silence_ms: int, endpointing: Endpointing
) -> None:
    settings = SessionSettings(silence_ms=silence_ms, endpointing=endpointing, pre_roll_ms=900)
    verdicts = "".join(("x" if voiced else ".") * length for voiced, length in runs)
    start, used = None, 0
    for point in points(verdicts, settings, close=True):
        match point:
            case Opened(begin) | SpeechResumed(begin):
                assert start is None and begin >= used
                start = begin
            case Checkpoint(end):
                assert start is not None and end > max(start, used)
                used = end
            case Paused(end):
                assert start is not None and end == used
                start = None
            case Closed(end):
                assert end >= used
                start, used = None, end
    assert start is None
