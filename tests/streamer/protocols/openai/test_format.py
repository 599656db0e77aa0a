from __future__ import annotations

import json
import math

from engine.api import Hypothesis, Segment, Word
from streamer.protocols.openai import format as write
from streamer.recording.collector import Collector

S = 16_000


def window(*texts: str, start: int = 0, language: str = "en", step: int = S) -> Hypothesis:
    segments = []
    for index, text in enumerate(texts):
        at = start + index * step
        words = tuple(
            Word(f" {name}", at + n * 100, at + n * 100 + 50, 0.5)
            for n, name in enumerate(text.split())
        )
        segments.append(Segment(text, at, at + step, False, words, (7, 8)))
    end = start + max(1, len(texts)) * step
    return Hypothesis(start, end, tuple(segments), language, 1.0, -0.25, 0.1, 1.3, tokens=(1, 2, 3))


def collect(*windows: Hypothesis) -> Collector:
    collector = Collector()
    for each in windows:
        collector.add(each)
    return collector


def test_verbose_has_the_vendors_fields() -> None:
    collector = collect(window(" One two.", " Three."), window(" Four.", start=30 * S))
    body = write.write_verbose(collector, 40 * S, "transcribe", has_segments=True, has_words=True)
    assert (body["language"], body["duration"], body["task"]) == ("english", 40.0, "transcribe")
    segments = body["segments"]
    assert isinstance(segments, list)
    assert segments[2] == {
        "id": 2,
        "seek": 3000,
        "start": 30.0,
        "end": 31.0,
        "text": " Four.",
        "tokens": [7, 8],
        "temperature": 0.0,
        "avg_logprob": -0.25,
        "compression_ratio": 1.3,
        "no_speech_prob": 0.1,
    }
    words = body["words"]
    assert isinstance(words, list) and [w["word"] for w in words] == [
        "One",
        "two.",
        "Three.",
        "Four.",
    ]


def test_a_translation_is_english() -> None:
    collector = collect(window(" One.", language="de"))
    body = write.write_verbose(collector, S, "translate", has_segments=False, has_words=False)
    assert body["language"] == "english" and "segments" not in body and "words" not in body


def test_nothing_said_is_strict_json() -> None:
    broken = Hypothesis(0, S, (), "en", 0.0, math.nan, math.nan, math.inf)
    collector = collect(broken, window(" ", start=S))
    body = write.write_verbose(collector, S, "transcribe", has_segments=True, has_words=True)
    assert json.loads(write.encode(body)) == {
        "task": "transcribe",
        "language": "",
        "duration": 1.0,
        "text": "",
        "segments": [],
        "words": [],
        "usage": {"type": "duration", "seconds": 1.0},
    }


def test_numbers_that_are_none_are_zero() -> None:
    text = Segment(" One.", 0, S, False)
    collector = collect(Hypothesis(0, S, (text,), "en", 1.0, math.nan, math.nan, math.inf))
    body = write.write_verbose(collector, S, "transcribe", has_segments=True, has_words=False)
    segments = body["segments"]
    assert isinstance(segments, list) and segments[0]["avg_logprob"] == 0.0


def test_subtitles() -> None:
    passages = collect(window(" One <b> & two.", " Three.", start=3599 * S)).passages
    assert write.write_srt(passages) == (
        "1\n00:59:59,000 --> 01:00:00,000\nOne <b> & two.\n\n"
        "2\n01:00:00,000 --> 01:00:01,000\nThree.\n"
    )
    assert write.write_vtt(passages) == (
        "WEBVTT\n\n00:59:59.000 --> 01:00:00.000\nOne &lt;b&gt; &amp; two.\n\n"
        "01:00:00.000 --> 01:00:01.000\nThree.\n"
    )
    assert (write.write_srt([]), write.write_vtt([])) == ("", "WEBVTT\n")


def test_cues_last_long_enough_and_follow_one_another() -> None:
    # segments of 20 ms, as the model may write them
    cues = write.write_srt(collect(window(" One.", " Two.", " Three.", step=320)).passages)
    assert [line for line in cues.split("\n") if "-->" in line] == [
        "00:00:00,000 --> 00:00:00,100",
        "00:00:00,100 --> 00:00:00,200",
        "00:00:00,200 --> 00:00:00,300",
    ]


def test_events_are_the_vendors() -> None:
    collector = collect(window(" One."))
    assert write.write_delta("One.") == b'data: {"type":"transcript.text.delta","delta":"One."}\n\n'
    done = json.loads(write.write_done(collector, 2 * S, has_logprobs=True)[len("data: ") :])
    assert (done["type"], done["text"]) == ("transcript.text.done", "One.")
    assert done["usage"]["input_tokens"] == 100 and done["usage"]["output_tokens"] == 3
    assert done["logprobs"] == [
        {"token": " One.", "logprob": round(math.log(0.5), 4), "bytes": list(b" One.")}
    ]
