"""Settings that check themselves."""

from __future__ import annotations

from typing import Any

import pytest

from engine.config import EngineConfig


def test_defaults_are_valid() -> None:
    assert EngineConfig().model == "base"


@pytest.mark.parametrize(
    "settings",
    [
        {"model": ""},
        {"device": "tpu"},
        {"dtype": "int3"},
        {"encoder_tail": 1},
        {"encoder_tail": "none"},
        {"encoder_tail": True},
        {"tail_margin_s": -1.0},
        {"tail_margin_s": float("nan")},
        {"max_streams": 0},
        {"max_batch": 0},
        {"max_encode_batch": -1},
        {"self_kv_bytes": 0},
        {"cross_kv_bytes": 0},
        {"num_threads": 0},
        {"max_no_speech_probability": 1.5},
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, Any]) -> None:
    (name,) = settings
    with pytest.raises(ValueError, match=f"{name}: expected"):
        EngineConfig(**settings)


def test_encoder_tail_is_a_word_or_a_factor() -> None:
    for tail in ("auto", "full", 2, 25):
        assert EngineConfig(encoder_tail=tail).encoder_tail == tail
