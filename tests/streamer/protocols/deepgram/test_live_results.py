from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api import ModelInfo, Word
from streamer.protocols.deepgram.live_results import ResultsWriter
from streamer.protocols.deepgram.messages import Results, describe_model, encode
from streamer.protocols.deepgram.options import parse_options
from streamer.transcription import events

S = 16_000
MODEL = ModelInfo("base", ("en",), "cpu", "float32")


def writer(channels: int = 1, **query: str) -> ResultsWriter:
    options = parse_options({name: [value] for name, value in query.items()})
    return ResultsWriter(options, describe_model("id", MODEL), channels)


def started(segment: int = 0, start: float = 0.0, channel: int = 0) -> events.SpeechStarted:
    return events.SpeechStarted(channel, segment, round(start * S), 0)


def partial(settled: str, volatile: str, start: float, end: float) -> events.Partial:
    return events.Partial(0, 0, settled, volatile, round(start * S), round(end * S), "en", 0)


def final(
    text: str,
    start: float,
    end: float,
    *,
    segment: int = 0,
    channel: int = 0,
    is_endpoint: bool = True,
    words: tuple[Word, ...] = (),
) -> events.Final:
    return events.Final(
        channel=channel,
        segment=segment,
        text=text,
        start=round(start * S),
        end=round(end * S),
        language="en",
        language_probability=1.0,
        words=words,
        avg_logprob=-0.2,
        no_speech_probability=0.0,
        is_endpoint=is_endpoint,
        reason=None,
        lag=0,
    )


def shown(messages: list[Any]) -> list[dict[str, Any]]:
    return [json.loads(encode(message)) for message in messages]


def test_interims_cover_the_range_that_the_final_covers() -> None:
    w = writer(interim_results="true", punctuate="true")
    assert w.translate(started(start=1.0)) == []
    (interim,) = shown(w.translate(partial(" Hello", " wor", 1.0, 2.0)))
    assert interim["type"] == "Results"
    assert (interim["start"], interim["duration"]) == (0.0, 2.0)
    assert interim["is_final"] is False
    assert interim["speech_final"] is False
    alternative = interim["channel"]["alternatives"][0]
    assert alternative["transcript"] == "Hello wor"
    assert alternative["confidence"] == 0.75
    (result,) = shown(w.translate(final(" Hello world.", 1.0, 2.5)))
    assert (result["start"], result["duration"]) == (0.0, 2.5)
    assert result["is_final"] is True
    assert result["speech_final"] is True
    assert result["channel"]["alternatives"][0]["transcript"] == "Hello world."


def test_no_interims_unless_asked_for() -> None:
    w = writer()
    assert w.translate(partial(" Hello", "", 0.0, 1.0)) == []
    assert w.translate(started()) == []


def test_a_cut_segment_is_final_but_not_speech_final() -> None:
    w = writer()
    (result,) = shown(w.translate(final(" so on", 0.0, 28.0, is_endpoint=False)))
    assert result["is_final"] is True
    assert result["speech_final"] is False


def test_without_endpointing_nothing_is_speech_final() -> None:
    w = writer(endpointing="false")
    (result,) = shown(w.translate(final(" so on", 0.0, 2.0)))
    assert result["is_final"] is True
    assert result["speech_final"] is False


def test_speech_events_only_with_vad_events() -> None:
    w = writer(vad_events="true")
    assert shown(w.translate(started(start=1.25))) == [
        {"type": "SpeechStarted", "channel": [0, 1], "timestamp": 1.25}
    ]


def test_finalize_marks_the_last_open_segment() -> None:
    w = writer()
    w.translate(started(0, 0.0))
    w.translate(started(1, 3.0))
    assert w.finalize(0, 2, 5 * S) == []
    (first,) = shown(w.translate(final(" a", 0.0, 2.0, segment=0)))
    (second,) = shown(w.translate(final(" b", 3.0, 5.0, segment=1)))
    assert (first["from_finalize"], second["from_finalize"]) == (False, True)
    w.translate(started(2, 6.0))
    (third,) = shown(w.translate(final(" c", 6.0, 7.0, segment=2)))
    assert third["from_finalize"] is False


def test_finalize_waits_for_segments_that_no_event_told_of() -> None:
    w = writer()
    w.translate(started(0, 0.0))
    assert w.finalize(0, 3, 9 * S) == [], "two more began, their events are on their way"
    flags = [
        shown(w.translate(final(" a", n, n + 1, segment=n)))[0]["from_finalize"] for n in range(3)
    ]
    assert flags == [False, False, True]


def test_finalize_of_silence_is_answered_at_once() -> None:
    w = writer(channels=2)
    (answer,) = shown(w.finalize(1, 0, 4 * S))
    assert answer["from_finalize"] is True
    assert answer["is_final"] is True
    assert answer["channel_index"] == [1, 2]
    assert (answer["start"], answer["duration"]) == (0.0, 4.0)
    assert answer["channel"]["alternatives"][0]["transcript"] == ""


def test_utterance_end_follows_the_gap_once() -> None:
    w = writer(utterance_end_ms="1000", interim_results="true")
    w.translate(started(0, 0.0))
    assert w.advance(10 * S) == [], "a segment is open"
    words = (Word(" yes", S, 2 * S, 0.9),)
    w.translate(final(" yes", 0.5, 2.4, words=words))
    assert w.advance(round(2.9 * S)) == []
    assert shown(w.advance(3 * S)) == [
        {"type": "UtteranceEnd", "channel": [0, 1], "last_word_end": 2.0}
    ]
    assert w.advance(9 * S) == []


def test_utterance_end_comes_before_the_next_speech() -> None:
    w = writer(utterance_end_ms="1000", vad_events="true")
    w.translate(final(" yes", 0.5, 2.0))
    kinds = [m["type"] for m in shown(w.translate(started(1, 5.0)))]
    assert kinds == ["UtteranceEnd", "SpeechStarted"]
    w.translate(final(" no", 5.0, 6.0, segment=1))
    kinds = [m["type"] for m in shown(w.translate(started(2, 6.5)))]
    assert kinds == ["SpeechStarted"], "the gap was short: the utterance goes on"


def test_text_withheld_ends_no_utterance() -> None:
    w = writer(utterance_end_ms="1000")
    w.translate(final("", 0.0, 2.0))
    assert w.advance(20 * S) == []


def test_close_covers_the_rest_of_the_stream() -> None:
    w = writer()
    w.translate(final(" a", 0.0, 2.0))
    (rest,) = shown(w.close(5 * S))
    assert (rest["start"], rest["duration"], rest["is_final"]) == (2.0, 3.0, True)
    assert w.close(5 * S) == []


def test_a_stream_without_speech_still_has_a_result() -> None:
    w = writer()
    (only,) = shown(w.close(0))
    assert (only["start"], only["duration"]) == (0.0, 0.0)


def test_languages_are_named_for_multi() -> None:
    w = writer(language="multi")
    (result,) = shown(w.translate(final(" hola", 0.0, 1.0)))
    assert result["channel"]["alternatives"][0]["languages"] == ["en"]


def test_words_carry_their_times() -> None:
    w = writer(punctuate="true")
    words = (Word(" Hello", S // 2, S, 0.91234567), Word(" you.", S, 2 * S, 0.8))
    (result,) = shown(w.translate(final(" Hello you.", 0.2, 2.2, words=words)))
    assert result["channel"]["alternatives"][0]["words"] == [
        {
            "word": "hello",
            "start": 0.5,
            "end": 1.0,
            "confidence": 0.9123,
            "punctuated_word": "Hello",
        },
        {"word": "you", "start": 1.0, "end": 2.0, "confidence": 0.8, "punctuated_word": "you."},
    ]


@given(
    st.lists(
        st.tuples(st.integers(0, 1), st.integers(0, 40_000), st.integers(1, 60_000)), max_size=12
    )
)
def test_final_results_cover_the_stream_without_gap_or_overlap(
    steps: list[tuple[int, int, int]],
) -> None:
    w = writer(channels=2)
    ends, results = [0, 0], list[Results]()
    for segment, (channel, gap, length) in enumerate(steps):
        start = ends[channel] + gap
        ends[channel] = start + length
        event = final(" x", start / S, ends[channel] / S, segment=segment, channel=channel)
        results += [m for m in w.translate(event) if isinstance(m, Results)]
    total = max([*ends, 1000])
    results += [m for m in w.close(total) if isinstance(m, Results)]
    for channel in (0, 1):
        position = 0.0
        for result in results:
            if result.channel_index[0] == channel:
                assert result.start == pytest.approx(position, abs=1e-9)
                position = round(result.start + result.duration, 3)
        assert position == pytest.approx(total / S, abs=1e-3)
