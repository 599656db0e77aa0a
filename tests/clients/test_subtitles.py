from __future__ import annotations

import json
import re

from hypothesis import given
from hypothesis import strategies as st

from clients import subtitles
from streamer.protocol import Final, Word


def _final(text: str, start: float, end: float, words: list[Word] | None = None) -> Final:
    return Final(0, 0, text, start, end, "en", True, 0.0, words)


def _timed(text: str, start: float, step: float) -> Final:
    pieces = [f" {piece}" for piece in text.split()]
    words = [Word(p, start + i * step, start + (i + 1) * step, 0.9) for i, p in enumerate(pieces)]
    return _final(text, start, words[-1].end, words)


TWO = [_final("Hello there.", 0.5, 1.25), _final("", 2, 3), _final("A < B & C", 3661.5, 3662.0)]


def test_text_is_a_line_for_each_final_with_words() -> None:
    assert subtitles.to_text(TWO) == "Hello there.\nA < B & C\n"


def test_srt_counts_cues_and_writes_commas() -> None:
    assert subtitles.to_srt(TWO) == (
        "1\n00:00:00,500 --> 00:00:01,250\nHello there.\n\n"
        "2\n01:01:01,500 --> 01:01:02,000\nA < B & C\n"
    )


def test_vtt_escapes_its_markup() -> None:
    assert subtitles.to_vtt(TWO) == (
        "WEBVTT\n\n00:00:00.500 --> 00:00:01.250\nHello there.\n"
        "\n01:01:01.500 --> 01:01:02.000\nA &lt; B &amp; C\n"
    )


def test_json_holds_text_and_segments() -> None:
    record = json.loads(subtitles.to_json([_timed("one two", 1.0, 0.5)]))
    assert record["text"] == "one two"
    assert record["segments"][0]["words"][1] == {
        "text": " two",
        "start": 1.5,
        "end": 2.0,
        "probability": 0.9,
    }


def test_nothing_said_gives_empty_transcripts() -> None:
    assert subtitles.to_text([]) == subtitles.to_srt([]) == ""
    assert subtitles.to_vtt([]) == "WEBVTT\n"
    assert json.loads(subtitles.to_json([])) == {"text": "", "segments": []}


def test_long_finals_are_cut_between_words_at_their_times() -> None:
    text = " ".join(f"word{i}" for i in range(60))
    cues = subtitles.to_cues([_timed(text, 10.0, 0.4)])
    assert len(cues) > 3
    assert " ".join(cue.text.replace("\n", " ") for cue in cues) == text
    for cue in cues:
        assert cue.end - cue.start <= subtitles.MAX_CUE_S
        assert all(len(line) <= subtitles.MAX_LINE for line in cue.text.split("\n"))
    first = cues[1].text.split()[0]
    assert cues[1].start == 10.0 + 0.4 * int(first.removeprefix("word"))


def test_short_cues_are_stretched_up_to_the_next_one() -> None:
    cues = subtitles.to_cues([_final("Yes.", 1.0, 1.1), _final("No.", 1.3, 1.4)])
    assert [(cue.start, cue.end) for cue in cues] == [(1.0, 1.3), (1.3, 1.8)]


@given(
    words=st.lists(st.text("abcäß漢字", min_size=1, max_size=30), min_size=1, max_size=60),
    length=st.floats(0, 120),
)
def test_cues_keep_every_word_in_order_of_time(words: list[str], length: float) -> None:
    text = " ".join(words)
    cues = subtitles.to_cues([_final(text, 0.0, length)])
    assert re.sub(r"\s", "", "".join(cue.text for cue in cues)) == "".join(words)
    times = [time for cue in cues for time in (cue.start, cue.end)]
    assert all(b >= a - 1e-3 for a, b in zip(times, times[1:], strict=False))
