"""Whisper models of any size with random weights: true shapes, for speed and for equality."""

from __future__ import annotations

import math

import torch

from engine.checkpoint.model_config import AlignmentHead, ModelConfig
from engine.checkpoint.weights import Weights, list_sources

# d_model, encoder layers, decoder layers, mel bands (openai/whisper model cards)
SHAPES = {
    "base": (512, 6, 6, 80),
    "small": (768, 12, 12, 80),
    "large-v3-turbo": (1280, 32, 4, 128),
    "large-v3": (1280, 32, 32, 128),
    "test": (128, 2, 2, 80),
}
VOCABULARY = 51865  # of base's tokenizer; large-v3 has one token more


def make_config(name: str) -> ModelConfig:
    d_model, encoder_layers, decoder_layers, num_mels = SHAPES[name]
    return ModelConfig(
        d_model=d_model,
        num_heads=d_model // 64,
        encoder_layers=encoder_layers,
        decoder_layers=decoder_layers,
        encoder_ffn=4 * d_model,
        decoder_ffn=4 * d_model,
        vocab_size=VOCABULARY,
        num_mels=num_mels,
        max_source_positions=1500,
        max_target_positions=448,
        is_multilingual=True,
        alignment_heads=(
            AlignmentHead(decoder_layers - 1, 0),
            AlignmentHead(decoder_layers - 1, 1),
        ),
        suppress_tokens=(1, 2, 7),
        begin_suppress_tokens=(220,),
    )


def make_weights(
    config: ModelConfig, dtype: torch.dtype, device: torch.device, seed: int = 1
) -> Weights:
    """Draw weights so that activations keep their size and the logits are spread out."""
    generator = torch.Generator(device).manual_seed(seed)
    weights: Weights = {}
    for source in list_sources(config):
        values = torch.randn(source.shape, generator=generator, device=device)
        if "norm.weight" in source.name:
            values = 1 + 0.1 * values
        elif source.name.endswith(".bias"):
            values *= 0.02
        elif source.name.endswith(".positions"):
            values *= 0.1
        elif "embedding" in source.name:
            values *= 0.2
        else:
            fan_in = math.prod(source.shape[1:])
            values *= fan_in**-0.5
        weights[source.name] = values.to(dtype)
    return weights
