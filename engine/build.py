"""What an engine is made of on each device: model, runner, encoder, scheduler with its pools."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch

from engine.api import SAMPLE_RATE
from engine.batching.counters import Counters
from engine.batching.device_encoder import DeviceEncoder
from engine.batching.encoder_interface import Encoder
from engine.batching.encoder_threads import EncoderThreads
from engine.batching.finish import AligningRunner
from engine.batching.page_pool import PagePool
from engine.batching.runner import EagerRunner
from engine.batching.scheduler import Scheduler
from engine.checkpoint.locate import ModelFiles, resolve_model
from engine.checkpoint.model_config import ModelConfig, read_model_config
from engine.checkpoint.weights import load_weights
from engine.config import EngineConfig
from engine.decoding.rules import Rules, build_rules
from engine.decoding.tokenizer import Tokenizer
from engine.model.folded_tail import SAMPLES_PER_POSITION
from engine.model.precision import Precision, choose_precision
from engine.model.sdpa import SdpaAttention
from engine.model.whisper import Whisper

SELF_PAGE_SIZE = 16  # positions
CROSS_PAGE_SIZE = 50  # positions, 1 s of audio: 30 pages hold a whole window exactly
# unless the configuration says otherwise; a GPU finds out at its start how much memory it has
CPU_MAX_BATCH, CUDA_MAX_BATCH = 32, 256
CPU_MAX_ENCODE_BATCH, CUDA_MAX_ENCODE_BATCH = 8, 32
MAX_STREAMS = {"cpu": 256, "cuda": 4096}
# a CPU encodes no faster in larger calls, so one window should not wait for another
CPU_MAX_ENCODE_POSITIONS = 400
CUDA_MAX_ENCODE_POSITIONS = 12_288  # in one call: 8 whole windows, or some 35 folded ones
DEFAULT_FOLD = 25  # chosen by benchmarks/folded_tail.py


@dataclass(frozen=True, slots=True)
class BuildSpec:
    """What is to be built: a configuration, and what it means on this machine."""

    config: EngineConfig
    files: ModelFiles
    model: ModelConfig
    tokenizer: Tokenizer
    device: torch.device
    precision: Precision
    fold: int | None  # weight of a folded position
    margin: int  # positions of silence kept at full resolution after the audio
    max_streams: int
    num_threads: int  # of a CPU, for an encode


@dataclass(frozen=True, slots=True)
class Components:
    """A loaded model and what the loop runs it with."""

    model: Whisper
    rules: Rules
    runner: AligningRunner
    encoder: Encoder
    scheduler: Scheduler


def read_spec(config: EngineConfig) -> BuildSpec:
    """Find a model's files and read all but the weights.

    Raises:
        ModelError: the model is missing or broken.
        ValueError: the device does not compute in the precision asked for.
    """
    files = resolve_model(config.model)
    model = read_model_config(files)
    device = torch.device(choose_device(config.device))
    return BuildSpec(
        config=config,
        files=files,
        model=model,
        tokenizer=Tokenizer(files.tokenizer, model.is_multilingual, model.vocab_size),
        device=device,
        precision=choose_precision(config.dtype, device),
        fold=choose_fold(config.encoder_tail),
        margin=round(config.tail_margin_s * SAMPLE_RATE / SAMPLES_PER_POSITION),
        max_streams=config.max_streams or MAX_STREAMS[device.type],
        num_threads=config.num_threads or count_cores(),
    )


def build_components(spec: BuildSpec, counters: Counters) -> Components:
    """Load a model and build what runs it.

    Raises:
        ModelError: the model is broken.
        ValueError: the device cannot run it, or the memory allowed holds no window.
    """
    if spec.device.type == "cuda":
        from engine.cuda.startup import check_device  # needs nothing that a CPU lacks

        if check_device(spec.device):
            return build_cuda_components(spec, counters)
    return build_eager_components(spec, counters)


def build_eager_components(spec: BuildSpec, counters: Counters) -> Components:
    """Build an engine of PyTorch's own operators, on any device."""
    config, device, dtype = spec.config, spec.device, spec.precision.dtype
    is_cpu = device.type == "cpu"
    weights = load_weights(spec.files, spec.model, dtype, device)
    model = Whisper(spec.model, weights, spec.precision.make_linear)
    max_batch = config.max_batch or CPU_MAX_BATCH
    self_pool, cross_pool = size_pools(config, spec.model, dtype.itemsize, max_batch)
    attention = SdpaAttention(
        spec.model,
        num_self_pages=self_pool.num_pages,
        self_page_size=SELF_PAGE_SIZE,
        num_cross_pages=cross_pool.num_pages,
        cross_page_size=CROSS_PAGE_SIZE,
        dtype=dtype,
        device=device,
    )
    rules = build_rules(spec.model, spec.tokenizer, device=device)
    runner = EagerRunner(model, attention, rules, spec.tokenizer, device, counters)
    scheduler = Scheduler(
        self_pool,
        cross_pool,
        max_batch=max_batch,
        max_encode_batch=config.max_encode_batch or CPU_MAX_ENCODE_BATCH,
        max_encode_positions=CPU_MAX_ENCODE_POSITIONS
        if is_cpu
        else spec.model.max_source_positions,
        max_waiting=spec.max_streams,
        max_background_batch=1 if is_cpu else None,
    )
    encoder = (
        EncoderThreads(runner.encode_in_pieces, spec.num_threads)
        if is_cpu
        else DeviceEncoder(runner.encode)
    )
    return Components(model, rules, runner, encoder, scheduler)


def build_cuda_components(spec: BuildSpec, counters: Counters) -> Components:
    """Build an engine of our own kernels and graphs."""
    from engine.cuda.build import Limits, PoolSizes, build_model, build_runner
    from engine.cuda.startup import (
        check_fp8,
        explain_out_of_memory,
        measure_memory,
        round_alike,
    )

    config, device, dtype = spec.config, spec.device, spec.precision.dtype
    uses_fp8 = config.dtype == "fp8"
    if uses_fp8:
        check_fp8(device)
    round_alike()
    weights = load_weights(spec.files, spec.model, dtype, device)
    model = build_model(spec.model, weights, uses_fp8=uses_fp8)
    rules = build_rules(spec.model, spec.tokenizer, device=device)
    max_batch = config.max_batch or CUDA_MAX_BATCH
    itemsize = dtype.itemsize
    memory = measure_memory(spec.model, itemsize, max_batch, (SELF_PAGE_SIZE, CROSS_PAGE_SIZE))
    max_batch, num_self, num_cross = (
        memory.max_batch,
        memory.num_self_pages,
        memory.num_cross_pages,
    )
    num_self, num_cross = configure_pages(config, spec.model, itemsize, num_self, num_cross)
    limits = Limits(
        max_batch=max_batch,
        max_encode_windows=config.max_encode_batch or CUDA_MAX_ENCODE_BATCH,
        max_encode_positions=CUDA_MAX_ENCODE_POSITIONS,
        fold=spec.fold,
    )
    try:
        runner = build_runner(
            model,
            rules,
            spec.tokenizer,
            counters,
            PoolSizes(num_self, SELF_PAGE_SIZE, num_cross, CROSS_PAGE_SIZE),
            limits,
            dtype,
            device,
        )
    except torch.cuda.OutOfMemoryError:
        raise explain_out_of_memory(max_batch, limits.max_encode_windows) from None
    scheduler = Scheduler(
        PagePool(num_self, SELF_PAGE_SIZE, in_runs=False),
        PagePool(num_cross, CROSS_PAGE_SIZE, in_runs=False),
        max_batch=max_batch,
        max_encode_batch=limits.max_encode_windows,
        max_encode_positions=limits.max_encode_positions,
        max_waiting=spec.max_streams,
    )
    return Components(model, rules, runner, DeviceEncoder(runner.encode), scheduler)


def size_pools(
    config: EngineConfig, model: ModelConfig, itemsize: int, max_batch: int
) -> tuple[PagePool, PagePool]:
    """Size the self and the cross pool from the model's shape and the memory allowed.

    Raises:
        ValueError: the memory does not hold a single window.
    """
    num_self = -(-model.max_target_positions // SELF_PAGE_SIZE) * max_batch
    num_cross = -(-model.max_source_positions // CROSS_PAGE_SIZE) * max_batch
    num_self, num_cross = configure_pages(config, model, itemsize, num_self, num_cross)
    return PagePool(num_self, SELF_PAGE_SIZE), PagePool(num_cross, CROSS_PAGE_SIZE)


def configure_pages(
    config: EngineConfig, model: ModelConfig, itemsize: int, num_self: int, num_cross: int
) -> tuple[int, int]:
    """Return how many pages the pools have, where the configuration may say so.

    Args:
        num_self: pages of the self pool unless the configuration says otherwise.
        num_cross: the same of the cross pool.

    Raises:
        ValueError: the memory allowed does not hold a single window, which would wait for ever.
    """
    counts = []
    for name, count, positions, page_size, position_bytes in (
        (
            "self_kv_bytes",
            num_self,
            model.max_target_positions,
            SELF_PAGE_SIZE,
            model.self_kv_bytes_per_token(itemsize),
        ),
        (
            "cross_kv_bytes",
            num_cross,
            model.max_source_positions,
            CROSS_PAGE_SIZE,
            model.cross_kv_bytes_per_position(itemsize),
        ),
    ):
        page_bytes = page_size * position_bytes
        allowed: int | None = getattr(config, name)
        if allowed is not None:
            count = allowed // page_bytes
        least = -(-positions // page_size)
        if count < least:
            raise ValueError(
                f"{name}: expected at least {least * page_bytes}, got {count * page_bytes}"
            )
        counts.append(count)
    return counts[0], counts[1]


def choose_device(device: str) -> str:
    """Choose the device asked for, or for "auto" the GPU where there is one."""
    if device != "auto":
        return device
    return "cuda" if torch.cuda.is_available() else "cpu"


def choose_fold(encoder_tail: str | int) -> int | None:
    """Return how many silent positions are folded into one, or None to fold none."""
    if encoder_tail == "auto":
        return DEFAULT_FOLD
    return None if encoder_tail == "full" else int(encoder_tail)


def count_cores() -> int:
    """Count the cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
