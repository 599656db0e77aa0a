from __future__ import annotations

import json

from engine.api import Hypothesis, ModelInfo, Segment, Word
from streamer.protocols.deepgram.file_response import write_response
from streamer.protocols.deepgram.messages import describe_model
from streamer.protocols.deepgram.options import parse_options
from streamer.recording.collector import Collector

S = 16_000
MODEL = describe_model("r1", ModelInfo("base", ("en",), "cpu", "float32"))


def window(number: int, *texts: str) -> Hypothesis:
    start = number * 10 * S
    segments = tuple(
        Segment(
            text,
            start + index * S,
            start + (index + 1) * S,
            False,
            (Word(text, start + index * S, start + (index + 1) * S, 0.8),),
        )
        for index, text in enumerate(texts)
    )
    return Hypothesis(start, start + 10 * S, segments, "en", 0.9, avg_logprob=-0.1)


def collect(*windows: Hypothesis) -> Collector:
    made = Collector()
    for each in windows:
        made.add(each)
    return made


def respond(*channels: Collector, **query: str) -> dict[str, object]:
    options = parse_options({name: [value] for name, value in query.items()})
    body = write_response(channels, options, MODEL, sha256="0", created="now", duration=20 * S)
    read: dict[str, object] = json.loads(json.dumps(body, allow_nan=False))
    return read


def test_windows_are_one_text_with_all_words() -> None:
    body = respond(collect(window(0, " Hello.", " You"), window(1, " there?")), punctuate="true")
    results = body["results"]
    assert isinstance(results, dict)
    alternative = results["channels"][0]["alternatives"][0]
    assert alternative["transcript"] == "Hello. You there?"
    assert [w["word"] for w in alternative["words"]] == ["hello", "you", "there"]
    assert [w["start"] for w in alternative["words"]] == [0.0, 1.0, 10.0]
    assert alternative["confidence"] == 0.8
    assert "utterances" not in results
    assert "detected_language" not in results["channels"][0]


def test_utterances_of_all_channels_are_in_order_of_time() -> None:
    body = respond(
        collect(window(0, " One."), window(1, " Three.")),
        collect(window(0, " One too.", " Two.")),
        utterances="true",
        punctuate="true",
        multichannel="true",
        channels="2",
    )
    results = body["results"]
    assert isinstance(results, dict)
    listed = [(u["channel"], u["transcript"], u["start"]) for u in results["utterances"]]
    assert listed == [(0, "One.", 0.0), (1, "One too.", 0.0), (1, "Two.", 1.0), (0, "Three.", 10.0)]
    metadata = body["metadata"]
    assert isinstance(metadata, dict)
    assert metadata["channels"] == 2
    assert metadata["duration"] == 20.0
    assert metadata["model_info"][metadata["models"][0]]["arch"] == "whisper"


def test_no_speech_is_no_text_and_no_nan() -> None:
    body = respond(collect(), detect_language="true", utterances="true")
    results = body["results"]
    assert isinstance(results, dict)
    assert results["channels"] == [
        {"alternatives": [{"transcript": "", "confidence": 0.0, "words": []}]}
    ]
    assert results["utterances"] == []
