"""Models that describe themselves."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.checkpoint.locate import ModelError, find_files
from engine.checkpoint.model_config import AlignmentHead, read_model_config
from tests.support.small_model import CONFIG, make_weights, write_ctranslate2, write_hugging_face


def test_both_formats_describe_the_same_model(tmp_path: Path) -> None:
    write_hugging_face(tmp_path / "hf", make_weights())
    write_ctranslate2(tmp_path / "ct2", make_weights())
    assert read_model_config(find_files(tmp_path / "hf")) == CONFIG
    assert read_model_config(find_files(tmp_path / "ct2")) == CONFIG


def test_without_alignment_heads_those_of_the_upper_half_are_taken(tmp_path: Path) -> None:
    write_hugging_face(tmp_path, make_weights())
    (tmp_path / "generation_config.json").unlink()
    config = read_model_config(find_files(tmp_path))
    assert config.alignment_heads == (AlignmentHead(1, 0), AlignmentHead(1, 1))
    assert config.suppress_tokens == (99,)  # then config.json's own are all there is


def test_sizes_of_the_caches_follow_the_shapes() -> None:
    assert CONFIG.head_dim == 64
    assert CONFIG.self_kv_bytes_per_token(2) == 2 * 2 * 128 * 2
    assert CONFIG.cross_kv_bytes_per_position(4) == 2 * 2 * 128 * 4


@pytest.mark.parametrize(
    "change",
    [
        {"model_type": "bert"},
        {"d_model": None},
        {"d_model": "wide"},
        {"decoder_attention_heads": 5, "encoder_attention_heads": 5},
        {"encoder_attention_heads": 4},
    ],
)
def test_a_config_that_is_not_whispers_is_one_clear_error(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    write_hugging_face(tmp_path, make_weights())
    path = tmp_path / "config.json"
    description = json.loads(path.read_text()) | change
    path.write_text(json.dumps({k: v for k, v in description.items() if v is not None}))
    with pytest.raises(ModelError, match="config.json") as caught:
        read_model_config(find_files(tmp_path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", ["", "{", "[1, 2]", "\x00"])
def test_a_config_that_is_no_object_is_one_clear_error(tmp_path: Path, content: str) -> None:
    write_ctranslate2(tmp_path, make_weights())
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ModelError, match="config.json"):
        read_model_config(find_files(tmp_path))


def test_alignment_heads_outside_the_model_are_refused(tmp_path: Path) -> None:
    config = replace(CONFIG, alignment_heads=(AlignmentHead(7, 0),))
    write_ctranslate2(tmp_path, make_weights(), config)
    with pytest.raises(ModelError, match="contradicts"):
        read_model_config(find_files(tmp_path))


@pytest.mark.model
def test_installed_models_have_their_published_shapes(base: Any, tiny_en: Any) -> None:
    """Shapes and heads of base and tiny.en as in whisper/model.py and whisper/__init__.py."""
    assert (base.config.d_model, base.config.num_heads, base.config.encoder_layers) == (512, 8, 6)
    assert (base.config.vocab_size, base.config.is_multilingual) == (51865, True)
    assert len(base.config.alignment_heads) == 8
    assert (tiny_en.config.d_model, tiny_en.config.num_heads) == (384, 6)
    assert (tiny_en.config.vocab_size, tiny_en.config.is_multilingual) == (51864, False)
    for config in (base.config, tiny_en.config):
        assert (config.num_mels, config.max_source_positions) == (80, 1500)
        assert config.max_target_positions == 448
        assert 220 in config.begin_suppress_tokens
