"""What an engine is made of on each device: model, runner, pools, and how much goes at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from engine.batching.counters import Counters
from engine.batching.encoder_pool import EncoderPool
from engine.batching.finish import AligningRunner
from engine.batching.page_pool import PagePool
from engine.batching.runner import EagerRunner
from engine.checkpoint.locate import ModelFiles
from engine.checkpoint.model_config import ModelConfig
from engine.checkpoint.weights import load_weights
from engine.config import EngineConfig
from engine.decoding.rules import Rules, build_rules
from engine.decoding.tokenizer import Tokenizer
from engine.model.layers import LinearMaker
from engine.model.sdpa import SdpaAttention
from engine.model.whisper import Whisper

SELF_PAGE = 16  # positions
CROSS_PAGE = 50  # positions, 1 s of sound: 30 pages hold a whole window exactly
# unless the configuration says otherwise; what a GPU has room for is found out at the start
CPU_BATCH, CUDA_BATCH = 32, 256
CPU_ENCODE_BATCH, CUDA_ENCODE_BATCH = 8, 32
# a CPU encodes no faster in larger calls, so one window should not wait for another
CPU_ENCODE_POSITIONS = 400
CUDA_ENCODE_POSITIONS = 12_288  # in one call: 8 whole windows, or some 35 folded ones


@dataclass(frozen=True, slots=True)
class Components:
    """A loaded model and what runs it."""

    model: Whisper
    rules: Rules
    runner: AligningRunner
    self_pool: PagePool
    cross_pool: PagePool
    max_batch: int
    max_encode_batch: int
    max_encode_positions: int
    aside: EncoderPool | None = None  # where encoding would hold up the decoder
    can_encode: Callable[[], bool] = lambda: True


@dataclass(frozen=True, slots=True)
class BuildSpec:
    """What is to be built."""

    config: EngineConfig
    files: ModelFiles
    model: ModelConfig
    tokenizer: Tokenizer
    counters: Counters
    device: torch.device
    dtype: torch.dtype  # of activations and K/V
    make_linear: LinearMaker  # where PyTorch computes
    fold: int | None  # weight of a folded position
    num_threads: int  # of a CPU, for an encode


def build_components(plan: BuildSpec) -> Components:
    """Load a model and build what runs it.

    Raises:
        ModelError: the model is broken.
        ValueError: the device cannot run it, or the memory allowed holds no window.
    """
    if plan.device.type == "cuda":
        from engine.cuda.startup import check_device  # needs nothing that a CPU lacks

        if check_device(plan.device):
            return build_cuda_components(plan)
    return build_eager_components(plan)


def build_eager_components(plan: BuildSpec) -> Components:
    """Build an engine of PyTorch's own operators, on any device."""
    config, device = plan.config, plan.device
    weights = load_weights(plan.files, plan.model, plan.dtype, device)
    model = Whisper(plan.model, weights, plan.make_linear)
    max_batch = config.max_batch or CPU_BATCH
    self_pool, cross_pool = size_pools(config, plan.model, plan.dtype.itemsize, max_batch)
    attention = SdpaAttention(
        plan.model,
        num_self_pages=self_pool.num_pages,
        self_page_size=SELF_PAGE,
        num_cross_pages=cross_pool.num_pages,
        cross_page_size=CROSS_PAGE,
        dtype=plan.dtype,
        device=device,
    )
    rules = build_rules(plan.model, plan.tokenizer, device=device)
    runner = EagerRunner(model, attention, rules, plan.tokenizer, device, plan.counters)
    return Components(
        model,
        rules,
        runner,
        self_pool,
        cross_pool,
        max_batch,
        config.max_encode_batch or CPU_ENCODE_BATCH,
        CPU_ENCODE_POSITIONS if device.type == "cpu" else plan.model.max_source_positions,
        EncoderPool(runner.encode_in_pieces, plan.num_threads) if device.type == "cpu" else None,
    )


def build_cuda_components(plan: BuildSpec) -> Components:
    """Build an engine of our own kernels and graphs."""
    from engine.cuda.build import Limits, PoolSizes, build_model, build_runner
    from engine.cuda.startup import (
        check_fp8,
        explain_out_of_memory,
        measure_memory,
        round_alike,
    )

    config, device = plan.config, plan.device
    uses_fp8 = config.dtype == "fp8"
    if uses_fp8:
        check_fp8(device)
    round_alike()
    weights = load_weights(plan.files, plan.model, plan.dtype, device)
    model = build_model(plan.model, weights, uses_fp8=uses_fp8)
    rules = build_rules(plan.model, plan.tokenizer, device=device)
    max_batch = config.max_batch or CUDA_BATCH
    itemsize = plan.dtype.itemsize
    memory = measure_memory(plan.model, itemsize, max_batch, (SELF_PAGE, CROSS_PAGE))
    max_batch, num_self, num_cross = (
        memory.max_batch,
        memory.num_self_pages,
        memory.num_cross_pages,
    )
    if config.self_kv_bytes is not None:
        num_self = config.self_kv_bytes // (
            SELF_PAGE * plan.model.self_kv_bytes_per_token(itemsize)
        )
    if config.cross_kv_bytes is not None:
        num_cross = config.cross_kv_bytes // (
            CROSS_PAGE * plan.model.cross_kv_bytes_per_position(itemsize)
        )
    limits = Limits(
        max_batch=max_batch,
        max_encode_windows=config.max_encode_batch or CUDA_ENCODE_BATCH,
        max_encode_positions=CUDA_ENCODE_POSITIONS,
        fold=plan.fold,
    )
    try:
        runner = build_runner(
            model,
            rules,
            plan.tokenizer,
            plan.counters,
            PoolSizes(num_self, SELF_PAGE, num_cross, CROSS_PAGE),
            limits,
            plan.dtype,
            device,
        )
    except torch.cuda.OutOfMemoryError:
        raise explain_out_of_memory(max_batch, limits.max_encode_windows) from None
    return Components(
        model,
        rules,
        runner,
        PagePool(num_self, SELF_PAGE, in_runs=False),
        PagePool(num_cross, CROSS_PAGE, in_runs=False),
        max_batch,
        limits.max_encode_windows,
        limits.max_encode_positions,
        can_encode=runner.can_encode,
    )


def size_pools(
    config: EngineConfig, model: ModelConfig, itemsize: int, max_batch: int
) -> tuple[PagePool, PagePool]:
    """Size the self and the cross pool from the model's shape and the memory allowed.

    Raises:
        ValueError: the memory does not hold a single window.
    """
    self_page_bytes = SELF_PAGE * model.self_kv_bytes_per_token(itemsize)
    cross_page_bytes = CROSS_PAGE * model.cross_kv_bytes_per_position(itemsize)
    least_self = -(-model.max_target_positions // SELF_PAGE)
    least_cross = -(-model.max_source_positions // CROSS_PAGE)
    num_self = (
        least_self * max_batch
        if config.self_kv_bytes is None
        else config.self_kv_bytes // self_page_bytes
    )
    num_cross = (
        least_cross * max_batch
        if config.cross_kv_bytes is None
        else config.cross_kv_bytes // cross_page_bytes
    )
    for name, count, least, size in (
        ("self_kv_bytes", num_self, least_self, self_page_bytes),
        ("cross_kv_bytes", num_cross, least_cross, cross_page_bytes),
    ):
        if count < least:
            raise ValueError(f"{name}: expected at least {least * size}, got {count * size}")
    return PagePool(num_self, SELF_PAGE), PagePool(num_cross, CROSS_PAGE)
