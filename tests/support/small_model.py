"""A Whisper of random weights, written to disk in both formats."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from engine.checkpoint.model_config import AlignmentHead, ModelConfig
from engine.checkpoint.weights import Weights, list_sources

CONFIG = ModelConfig(
    d_model=128,
    num_heads=2,
    encoder_layers=3,
    decoder_layers=2,
    encoder_ffn=96,
    decoder_ffn=160,
    vocab_size=200,
    num_mels=80,
    max_source_positions=30,
    max_target_positions=20,
    is_multilingual=False,
    alignment_heads=(AlignmentHead(1, 0), AlignmentHead(1, 1)),
    suppress_tokens=(1, 2),
    begin_suppress_tokens=(3,),
)


def make_weights(config: ModelConfig = CONFIG, seed: int = 0) -> Weights:
    """Make random weights that both formats can hold: the bias of k is zero."""
    generator = torch.Generator().manual_seed(seed)
    weights: Weights = {}
    for source in list_sources(config):
        tensor = torch.randn(source.shape, generator=generator)
        if source.name.endswith("qkv.bias"):
            tensor[config.d_model : 2 * config.d_model] = 0
        if source.name.endswith("kv.bias") and "cross" in source.name:
            tensor[: config.d_model] = 0
        weights[source.name] = tensor
    return weights


def write_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{}")  # its content is the tokenizer's matter


def write_hugging_face(
    folder: Path, weights: Weights, config: ModelConfig = CONFIG, num_shards: int = 1
) -> None:
    """Write config.json, generation_config.json and safetensors, as transformers does."""
    folder.mkdir(exist_ok=True)
    write_tokenizer(folder)
    description = {
        "model_type": "whisper",
        "d_model": config.d_model,
        "encoder_layers": config.encoder_layers,
        "encoder_attention_heads": config.num_heads,
        "decoder_layers": config.decoder_layers,
        "decoder_attention_heads": config.num_heads,
        "encoder_ffn_dim": config.encoder_ffn,
        "decoder_ffn_dim": config.decoder_ffn,
        "vocab_size": config.vocab_size,
        "num_mel_bins": config.num_mels,
        "max_source_positions": config.max_source_positions,
        "max_target_positions": config.max_target_positions,
        "suppress_tokens": [99],  # generation_config.json has the last word
        "begin_suppress_tokens": list(config.begin_suppress_tokens),
    }
    (folder / "config.json").write_text(json.dumps(description))
    generation = {
        "suppress_tokens": list(config.suppress_tokens),
        "alignment_heads": [[a.layer, a.head] for a in config.alignment_heads],
    }
    (folder / "generation_config.json").write_text(json.dumps(generation))
    tensors: dict[str, torch.Tensor] = {}
    for source in list_sources(config):
        parts = weights[source.name].chunk(len(source.hugging_face))
        for name, part in zip(source.hugging_face, parts, strict=True):
            if not name.endswith("k_proj.bias"):
                tensors[name] = part.clone()
    if num_shards == 1:
        save_file(tensors, folder / "model.safetensors")
        return
    index: dict[str, str] = {}
    for n in range(num_shards):
        shard = dict(list(tensors.items())[n::num_shards])
        file = f"model-{n + 1:05}-of-{num_shards:05}.safetensors"
        save_file(shard, folder / file)
        index |= dict.fromkeys(shard, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))


def write_ctranslate2(folder: Path, weights: Weights, config: ModelConfig = CONFIG) -> None:
    """Write config.json and model.bin in float32."""
    folder.mkdir(exist_ok=True)
    write_tokenizer(folder)
    description = {
        "alignment_heads": [[a.layer, a.head] for a in config.alignment_heads],
        "suppress_ids": list(config.suppress_tokens),
        "suppress_ids_begin": list(config.begin_suppress_tokens),
        "lang_ids": [],
    }
    (folder / "config.json").write_text(json.dumps(description))
    variables: dict[str, Any] = {
        "encoder/num_heads": np.int16(config.num_heads),
        "decoder/num_heads": np.int16(config.num_heads),
    }
    for source in list_sources(config):
        variables[source.ctranslate2] = weights[source.name].numpy()
    aliases = {"decoder/projection/weight": "decoder/embeddings/weight"}
    (folder / "model.bin").write_bytes(serialize(variables, aliases))


def serialize(
    variables: dict[str, Any],
    aliases: dict[str, str],
    version: int = 6,
    specification: str = "WhisperSpec",
) -> bytes:
    """Write a model.bin after ctranslate2's model_spec.py."""

    def text(string: str) -> bytes:
        return struct.pack("<H", len(string) + 1) + string.encode() + b"\0"

    types = {"float32": 0, "int8": 1, "int16": 2, "int32": 3, "float16": 4}
    out = [struct.pack("<I", version), text(specification), struct.pack("<II", 3, len(variables))]
    for name, value in variables.items():
        value = np.asarray(value)
        out += [text(name), struct.pack(f"<B{value.ndim}I", value.ndim, *value.shape)]
        out += [struct.pack("<BI", types[value.dtype.name], value.nbytes), value.tobytes()]
    out.append(struct.pack("<I", len(aliases)))
    out += [text(alias) + text(name) for alias, name in aliases.items()]
    return b"".join(out)
