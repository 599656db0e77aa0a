"""The shapes and token ids of a model, read from its own files; no model is known by name."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.checkpoint.ctranslate2 import open_checkpoint
from engine.checkpoint.locate import ModelError, ModelFiles, WeightFormat

HEAD_DIM = 64  # of every published Whisper (whisper/model.py: ModelDimensions)
# openai/whisper model.py: a vocabulary of this size or more has languages
MULTILINGUAL_VOCABULARY = 51865


@dataclass(frozen=True, slots=True)
class AlignmentHead:
    """A decoder cross-attention head that follows the audio."""

    layer: int
    head: int


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The shapes of a Whisper model, and the token ids its authors forbid."""

    d_model: int
    num_heads: int  # the same in encoder and decoder
    encoder_layers: int
    decoder_layers: int
    encoder_ffn: int
    decoder_ffn: int
    vocab_size: int
    num_mels: int
    max_source_positions: int  # encoder positions of 30 s: 1500
    max_target_positions: int  # decoder positions, prompt and output together: 448
    is_multilingual: bool
    alignment_heads: tuple[AlignmentHead, ...]
    suppress_tokens: tuple[int, ...]  # never sampled
    begin_suppress_tokens: tuple[int, ...]  # never sampled first

    @property
    def head_dim(self) -> int:
        return self.d_model // self.num_heads

    def self_kv_bytes_per_token(self, itemsize: int) -> int:
        """Return the bytes of self-attention K/V that one decoder position holds."""
        return 2 * self.decoder_layers * self.d_model * itemsize

    def cross_kv_bytes_per_position(self, itemsize: int) -> int:
        """Return the bytes of cross-attention K/V that one encoder position holds."""
        return 2 * self.decoder_layers * self.d_model * itemsize


def read_model_config(files: ModelFiles) -> ModelConfig:
    """Read a model's shapes and ids from its own files; of the weights only the header.

    Raises:
        ModelError: a file is broken or describes something else than Whisper.
    """
    config = read_json(files.config)
    try:
        if files.format is WeightFormat.CTRANSLATE2:
            result = from_ctranslate2(config, files)
        else:
            generation = read_json(files.generation_config) if files.generation_config else {}
            result = from_hugging_face(config, generation)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise ModelError(
            f"{files.config} does not describe a Whisper model: {type(error).__name__} {error}"
        ) from None
    if result.d_model % result.num_heads or any(
        not (0 <= a.layer < result.decoder_layers and 0 <= a.head < result.num_heads)
        for a in result.alignment_heads
    ):
        raise ModelError(f"{files.config} contradicts itself or the weights")
    return result


def read_json(path: Path) -> Mapping[str, Any]:
    """Read a JSON object; ModelError where there is none."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from None
    if not isinstance(value, dict):
        raise ModelError(f"{path} is not a JSON object")
    return value


def from_hugging_face(config: Mapping[str, Any], generation: Mapping[str, Any]) -> ModelConfig:
    """Read config.json and generation_config.json of transformers.

    Raises:
        KeyError, TypeError, ValueError: they do not describe a Whisper model.
    """
    if config.get("model_type") != "whisper":
        raise ValueError(f"expected model_type whisper, got {config.get('model_type')}")
    layers, heads = int(config["decoder_layers"]), int(config["decoder_attention_heads"])
    if int(config["encoder_attention_heads"]) != heads:
        raise ValueError("expected as many encoder as decoder heads")

    def ids(name: str) -> tuple[int, ...]:
        # generation_config.json wins, as in transformers; older folders have them in config.json
        return tuple(int(i) for i in generation.get(name, config.get(name)) or ())

    vocab_size = int(config["vocab_size"])
    return ModelConfig(
        d_model=int(config["d_model"]),
        num_heads=heads,
        encoder_layers=int(config["encoder_layers"]),
        decoder_layers=layers,
        encoder_ffn=int(config["encoder_ffn_dim"]),
        decoder_ffn=int(config["decoder_ffn_dim"]),
        vocab_size=vocab_size,
        num_mels=int(config["num_mel_bins"]),
        max_source_positions=int(config["max_source_positions"]),
        max_target_positions=int(config["max_target_positions"]),
        is_multilingual=bool(
            generation.get("is_multilingual", vocab_size >= MULTILINGUAL_VOCABULARY)
        ),
        alignment_heads=read_alignment_heads(generation.get("alignment_heads"), layers, heads),
        suppress_tokens=ids("suppress_tokens"),
        begin_suppress_tokens=ids("begin_suppress_tokens"),
    )


def from_ctranslate2(config: Mapping[str, Any], files: ModelFiles) -> ModelConfig:
    """Read config.json of CTranslate2, and the shapes from the header of the weights.

    Raises:
        KeyError, TypeError, ValueError, IndexError: they do not describe a Whisper model.
    """
    with open_checkpoint(files.weights) as checkpoint:
        shapes = {name: variable.shape for name, variable in checkpoint.variables.items()}
        num_heads = checkpoint.read_scalar("encoder/num_heads")
    vocab_size, d_model = shapes["decoder/embeddings/weight"]

    def count_layers(side: str) -> int:
        layer = re.compile(rf"{side}/layer_\d+/")
        return len({match[0] for name in shapes if (match := layer.match(name))})

    heads = num_heads or d_model // HEAD_DIM
    layers = count_layers("decoder")
    return ModelConfig(
        d_model=d_model,
        num_heads=heads,
        encoder_layers=count_layers("encoder"),
        decoder_layers=layers,
        encoder_ffn=shapes["encoder/layer_0/ffn/linear_0/weight"][0],
        decoder_ffn=shapes["decoder/layer_0/ffn/linear_0/weight"][0],
        vocab_size=vocab_size,
        num_mels=shapes["encoder/conv1/weight"][1],
        max_source_positions=shapes["encoder/position_encodings/encodings"][0],
        max_target_positions=shapes["decoder/position_encodings/encodings"][0],
        is_multilingual=vocab_size >= MULTILINGUAL_VOCABULARY,
        alignment_heads=read_alignment_heads(config.get("alignment_heads"), layers, heads),
        suppress_tokens=tuple(int(i) for i in config.get("suppress_ids") or ()),
        begin_suppress_tokens=tuple(int(i) for i in config.get("suppress_ids_begin") or ()),
    )


def read_alignment_heads(
    pairs: list[list[int]] | None, decoder_layers: int, num_heads: int
) -> tuple[AlignmentHead, ...]:
    """Return the (layer, head) pairs that a model names, or Whisper's own where it names none."""
    if pairs:
        return tuple(AlignmentHead(int(layer), int(head)) for layer, head in pairs)
    # all heads of the upper half of the decoder (whisper/model.py)
    return tuple(
        AlignmentHead(layer, head)
        for layer in range(decoder_layers // 2, decoder_layers)
        for head in range(num_heads)
    )
