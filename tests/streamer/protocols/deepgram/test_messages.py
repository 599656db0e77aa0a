from __future__ import annotations

import json
import math

import pytest

from engine.api import ModelInfo
from streamer.protocols.deepgram import messages


def test_fields_without_a_value_are_left_out() -> None:
    written = json.loads(messages.encode(messages.Error("SchemaError", "expected a type")))
    assert written == {
        "type": "Error",
        "variant": "SchemaError",
        "description": "expected a type",
    }


def test_nested_messages_are_written_whole() -> None:
    model = messages.describe_model("r1", ModelInfo("base", ("en",), "cpu", "float32"))
    word = messages.ResultWord("a", 0.0, 0.5, 0.9)
    alternative = messages.Alternative("a", 0.9, [word])
    result = messages.Results(
        [0, 1], 0.0, 1.0, True, False, False, messages.ResultChannel([alternative]), model
    )
    written = json.loads(messages.encode(result))
    assert written["type"] == "Results"
    assert written["is_final"] is True
    assert written["channel"]["alternatives"][0]["words"] == [
        {"word": "a", "start": 0.0, "end": 0.5, "confidence": 0.9}
    ]
    assert written["metadata"]["model_info"]["name"] == "base"


def test_the_same_model_has_the_same_id() -> None:
    info = ModelInfo("base", ("en",), "cpu", "float32")
    other = ModelInfo("tiny", ("en",), "cpu", "float32")
    first, second = messages.describe_model("a", info), messages.describe_model("b", info)
    assert first.model_uuid == second.model_uuid
    assert messages.describe_model("a", other).model_uuid != first.model_uuid


def test_no_json_holds_nan() -> None:
    with pytest.raises(ValueError, match="JSON"):
        messages.encode(messages.UtteranceEnd([0, 1], math.nan))


def test_nothing_ignored_is_no_warning() -> None:
    assert messages.warn(()) is None
    warned = messages.warn(("diarize",))
    assert warned is not None
    assert warned[0].parameter == "diarize"
