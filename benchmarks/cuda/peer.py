"""How many whole requests does transformers' generate serve on the same GPU?"""

from __future__ import annotations

import time

import torch

from benchmarks.cuda.decode import Result
from benchmarks.support.random_model import make_config

NUM_TOKENS = 100


def time_peer(name: str, batches: list[int]) -> list[Result]:
    """Generate 100 tokens for windows of 30 s, in batches, on a model of random weights."""
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    shape = make_config(name)
    config = WhisperConfig(
        vocab_size=shape.vocab_size,
        num_mel_bins=shape.num_mels,
        d_model=shape.d_model,
        encoder_layers=shape.encoder_layers,
        decoder_layers=shape.decoder_layers,
        encoder_attention_heads=shape.num_heads,
        decoder_attention_heads=shape.num_heads,
        encoder_ffn_dim=shape.encoder_ffn,
        decoder_ffn_dim=shape.decoder_ffn,
        pad_token_id=50256,
        bos_token_id=50257,
        eos_token_id=50257,
        decoder_start_token_id=50258,
    )
    with torch.device("cuda"):
        model = WhisperForConditionalGeneration(config).to(torch.bfloat16).eval()
    model.generation_config.suppress_tokens = None
    model.generation_config.begin_suppress_tokens = None
    model.generation_config.forced_decoder_ids = None
    results: list[Result] = []
    for batch in batches:
        mel = torch.randn(batch, shape.num_mels, 3000, dtype=torch.bfloat16, device="cuda")
        seconds = 0.0
        for _ in range(2):  # the first warms up
            torch.cuda.synchronize()
            began = time.perf_counter()
            with torch.inference_mode():
                model.generate(
                    mel,
                    max_new_tokens=NUM_TOKENS,
                    min_new_tokens=NUM_TOKENS,
                    do_sample=False,
                    num_beams=1,
                )
            torch.cuda.synchronize()
            seconds = time.perf_counter() - began
        results.append({"concurrency": batch, "requests_per_s": round(batch / seconds, 2)})
        print("transformers", results[-1], flush=True)
    return results
