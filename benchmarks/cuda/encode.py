"""How fast are windows encoded on the GPU, for each length and batch size?"""

from __future__ import annotations

import torch

from benchmarks.cuda.decode import Result, measure_us
from benchmarks.support.random_model import make_config, make_weights
from engine.checkpoint.model_config import ModelConfig
from engine.cuda.build import build_model
from engine.cuda.paged_attention import PagedAttention, Pools
from engine.model.folded_tail import KeptPositions, choose_positions
from engine.model.whisper import Whisper

FOLD, MARGIN = 25, 25  # EngineConfig.encoder_tail, .tail_margin_s in positions
SECONDS = {"30 s": 30.0, "10 s folded": 10.0, "5 s folded": 5.0, "3 s folded": 3.0}


def count_flops(config: ModelConfig, kept_positions: list[KeptPositions]) -> float:
    """Count the operations of the encoder's layers, convolutions and cross K/V left out."""
    C = config.d_model
    return config.encoder_layers * sum(
        24.0 * e.num_positions * C * C + 4.0 * e.num_positions**2 * C for e in kept_positions
    )


def time_encoder(
    model: Whisper, config: ModelConfig, batches: list[int], lengths: dict[str, float]
) -> list[Result]:
    """Time the encoder's layers: eager, and as a graph up to 16 windows."""
    device = torch.device("cuda")
    pools = Pools(
        config,
        num_self_pages=1,
        self_page_size=16,
        num_cross_pages=1,
        cross_page_size=50,
        num_slots=1,
        dtype=torch.bfloat16,
        device=device,
    )
    attention = PagedAttention(pools, max_tokens=1)
    results: list[Result] = []
    for label, seconds in lengths.items():
        fold = None if seconds == 30 else FOLD
        kept = choose_positions(int(seconds * 16000), factor=fold, margin=MARGIN)
        for batch in batches:
            kept_positions = [kept] * batch
            N = batch * kept.num_positions
            x = torch.randn(N, config.d_model, dtype=torch.bfloat16, device=device)
            attention.plan_encoder(kept_positions)
            with torch.inference_mode():

                def run(x: torch.Tensor = x) -> torch.Tensor:
                    return model.encode(x.clone(), attention)

                us = measure_us(run, 7)
                result: Result = {"length": label, "batch": batch, "positions": N}
                if batch <= 16:
                    graph = torch.cuda.CUDAGraph()
                    with torch.cuda.graph(graph):
                        run()
                    result["eager_ms"] = round(us / 1000, 2)
                    us = measure_us(graph.replay, 7)
                    del graph
                flops = count_flops(config, kept_positions)
                result |= {
                    "ms": round(us / 1000, 2),
                    "windows_per_s": round(batch / us * 1e6, 1),
                    "tflops": round(flops / us / 1e6, 1),
                }
            results.append(result)
            print(result, flush=True)
    return results


def encode_table(batches: list[int], *, uses_fp8: bool = False) -> list[Result]:
    """Time the encoder of large-v3's size."""
    config = make_config("large-v3-turbo")  # the same encoder, a smaller decoder
    weights = make_weights(config, torch.bfloat16, torch.device("cuda"))
    model = build_model(config, weights, uses_fp8=uses_fp8)
    return time_encoder(model, config, batches, SECONDS)
