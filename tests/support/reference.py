"""The reference implementation: transformers' Whisper with the weights of ours."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from engine.checkpoint.weights import list_sources
from tests.support.models import LoadedModel


def build_reference(model: LoadedModel) -> Any:
    """Build transformers' Whisper of our weights, in float32 on the CPU."""
    transformers = pytest.importorskip("transformers")
    config, tokenizer = model.config, model.tokenizer
    whisper = transformers.WhisperForConditionalGeneration(
        transformers.WhisperConfig(
            vocab_size=config.vocab_size,
            num_mel_bins=config.num_mels,
            encoder_layers=config.encoder_layers,
            encoder_attention_heads=config.num_heads,
            decoder_layers=config.decoder_layers,
            decoder_attention_heads=config.num_heads,
            encoder_ffn_dim=config.encoder_ffn,
            decoder_ffn_dim=config.decoder_ffn,
            d_model=config.d_model,
            max_source_positions=config.max_source_positions,
            max_target_positions=config.max_target_positions,
            pad_token_id=tokenizer.eot,
            bos_token_id=tokenizer.eot,
            eos_token_id=tokenizer.eot,
            decoder_start_token_id=tokenizer.sot,
            attn_implementation="eager",  # the one that also returns cross-attention weights
        )
    )
    missing, unexpected = whisper.load_state_dict(to_hugging_face(model), strict=False)
    assert not unexpected and set(missing) <= {"proj_out.weight"}, (missing, unexpected)
    generation = whisper.generation_config
    generation.suppress_tokens = list(config.suppress_tokens)
    generation.begin_suppress_tokens = list(config.begin_suppress_tokens)
    generation.alignment_heads = [[a.layer, a.head] for a in config.alignment_heads]
    generation.no_timestamps_token_id = tokenizer.no_timestamps
    generation.prev_sot_token_id = tokenizer.start_of_prev
    generation.max_initial_timestamp_index = 50
    generation.is_multilingual = tokenizer.is_multilingual
    generation.max_length = config.max_target_positions
    generation.forced_decoder_ids = None
    if tokenizer.is_multilingual:
        generation.lang_to_id = {f"<|{code}|>": id for code, id in tokenizer.languages.items()}
        generation.task_to_id = {
            "transcribe": tokenizer.transcribe,
            "translate": tokenizer.translate,
        }
    with torch.no_grad():
        return whisper.eval()


def to_hugging_face(model: LoadedModel) -> dict[str, Any]:
    """Name our weights as transformers does: the inverse of `engine.checkpoint.weights`."""
    state: dict[str, Any] = {}
    for source in list_sources(model.config):
        tensor = model.weights[source.name]
        for name, part in zip(
            source.hugging_face, tensor.chunk(len(source.hugging_face)), strict=True
        ):
            if name.endswith("k_proj.bias"):
                assert torch.count_nonzero(part) == 0
            else:
                state[name] = part
    return state
