"""Puts the engine's GPU parts together: model, pools, graphs, runner."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

import torch

from engine.batching.counters import Counters
from engine.checkpoint.model_config import ModelConfig
from engine.checkpoint.weights import Weights
from engine.cuda.batch import list_sizes
from engine.cuda.decoder_graphs import DecoderGraphs
from engine.cuda.encoder_graphs import EncoderGraphs
from engine.cuda.fp8 import Fp8Layers
from engine.cuda.layers import FEW_ROWS_WARPS, MANY_ROWS_WARPS, CudaLayers
from engine.cuda.paged_attention import PagedAttention, Pools
from engine.cuda.runner import CudaRunner
from engine.cuda.sampler import Sampler
from engine.decoding.rules import Rules
from engine.decoding.tokenizer import Tokenizer
from engine.model.whisper import Whisper

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """What the graphs are captured for."""

    max_batch: int = 256  # sequences in one step
    max_tokens: int = 1024  # of one step: drafts and prompts included
    max_encode_windows: int = 32  # in one encoder call
    max_encode_positions: int = 12_288  # in one encoder call
    fold: int | None = None  # weight of a folded position
    uses_graphs: bool = True


@dataclass(frozen=True, slots=True)
class PoolSizes:
    """Pages of both pools."""

    num_self_pages: int
    self_page_size: int
    num_cross_pages: int
    cross_page_size: int


def build_model(config: ModelConfig, weights: Weights, *, uses_fp8: bool = False) -> Whisper:
    """Build a model of weights that lie on the GPU.

    Args:
        uses_fp8: for the encoder's large products; needs compute capability 8.9.
    """
    encoder = Fp8Layers() if uses_fp8 else CudaLayers(MANY_ROWS_WARPS)
    return Whisper(config, weights, encoder=encoder, decoder=CudaLayers(FEW_ROWS_WARPS))


def build_runner(
    model: Whisper,
    rules: Rules,
    tokenizer: Tokenizer,
    counters: Counters,
    sizes: PoolSizes,
    limits: Limits,
    dtype: torch.dtype,
    device: torch.device,
) -> CudaRunner:
    """Allocate the pools, compile the kernels and capture the graphs. Takes a minute at first."""
    began = time.monotonic()
    pools = Pools(
        model.config,
        num_self_pages=sizes.num_self_pages,
        self_page_size=sizes.self_page_size,
        num_cross_pages=sizes.num_cross_pages,
        cross_page_size=sizes.cross_page_size,
        num_slots=limits.max_batch,
        dtype=dtype,
        device=device,
    )
    max_tokens = max(limits.max_tokens, limits.max_batch)
    sizes_captured = list_sizes(max_tokens)
    sampler = Sampler(
        rules,
        tokenizer.no_speech,
        num_slots=limits.max_batch,
        max_tokens=sizes_captured[-1],
        device=device,
    )
    graphs = DecoderGraphs(model, pools, sampler, sizes_captured, uses_graphs=limits.uses_graphs)
    encoder = EncoderGraphs(
        model,
        pools,
        max_windows=limits.max_encode_windows,
        max_positions=limits.max_encode_positions,
        fold=limits.fold,
        uses_graphs=limits.uses_graphs,
    )

    def report_pass(size: int) -> None:
        logger.info("captured steps of %d tokens", size)

    def report_encoder(size: int) -> None:
        logger.debug("captured the encoder for %d positions", size)

    logger.info("compiling kernels and capturing %d sizes of steps", len(sizes_captured))
    graphs.capture(report_pass)
    logger.info("capturing the encoder")
    encoder.capture(report_encoder)
    logger.info("captured all graphs in %.1f s", time.monotonic() - began)
    attention = PagedAttention(pools, max_tokens=1)
    return CudaRunner(model, attention, pools, graphs, encoder, rules, tokenizer, counters)
