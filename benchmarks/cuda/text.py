"""Does the GPU write what the CPU writes, whatever else is in the batch, graph or eager?"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, replace

import torch

from benchmarks.cuda.decode import Result
from benchmarks.support.jobs import Job, make_job, make_jobs, run_jobs
from benchmarks.support.random_model import make_config, make_weights
from engine.api import SAMPLE_RATE, Samples
from engine.batching.counters import Counters
from engine.batching.page_pool import PagePool
from engine.batching.scheduler import Scheduler
from engine.checkpoint.model_config import ModelConfig
from engine.checkpoint.weights import Weights
from engine.cuda.build import Limits, PoolSizes, build_model, build_runner
from engine.cuda.runner import CudaRunner
from engine.decoding.rules import build_rules
from engine.decoding.tokenizer import Tokenizer

DEVICE, DTYPE = torch.device("cuda"), torch.bfloat16
NUM_PAGES = 3000


@dataclass(frozen=True, slots=True)
class Setup:
    """A runner of real weights."""

    runner: CudaRunner
    tokenizer: Tokenizer
    fold: int | None
    max_batch: int

    def decode(self, jobs: list[Job], at_once: int, seed: int = 1) -> list[list[int]]:
        """Decode windows, several at once, and return their tokens."""
        scheduler = Scheduler(
            PagePool(NUM_PAGES, 16, in_runs=False),
            PagePool(NUM_PAGES, 50, in_runs=False),
            max_batch=self.max_batch,
            max_encode_batch=32,
            max_encode_positions=12_288,
            max_waiting=10_000,
        )
        done = run_jobs(
            jobs, self.runner, scheduler, self.tokenizer, fold=self.fold, at_once=at_once, seed=seed
        )
        return [sequence.tokens for sequence in done]


def set_up(
    config: ModelConfig,
    weights: Weights,
    tokenizer: Tokenizer,
    *,
    fold: int | None,
    uses_graphs: bool = True,
    uses_fp8: bool = False,
    max_batch: int = 64,
    max_tokens: int = 1024,
) -> Setup:
    """Build a runner of weights that lie on the GPU."""
    limits = Limits(max_batch, max_tokens, 32, 12_288, fold, uses_graphs=uses_graphs)
    model = build_model(config, weights, uses_fp8=uses_fp8)
    rules = build_rules(config, tokenizer, device=DEVICE)
    sizes = PoolSizes(NUM_PAGES, 16, NUM_PAGES, 50)
    runner = build_runner(model, rules, tokenizer, Counters(), sizes, limits, DTYPE, DEVICE)
    return Setup(runner, tokenizer, fold, max_batch)


def cut_windows(sounds: list[Samples], count: int, seed: int = 1) -> list[Samples]:
    """Cut a number of windows of 0.5 to 30 s out of recordings."""
    draw = random.Random(seed)
    windows = []
    while len(windows) < count:
        sound = draw.choice(sounds)
        length = int(draw.uniform(min(0.5 * SAMPLE_RATE, len(sound)), len(sound)))
        first = draw.randrange(len(sound) - length + 1)
        windows.append(sound[first : first + length])
    return windows


def compare_neighbours(setup: Setup, sounds: list[Samples], count: int) -> Result:
    """Decode windows alone, then in full batches twice, in another order each time."""
    jobs = [make_job(setup.tokenizer, sound) for sound in cut_windows(sounds, count)]
    began = time.perf_counter()
    alone = setup.decode(jobs, 1)
    between = time.perf_counter()
    different = 0
    for seed in (2, 3):
        order = list(range(count))
        random.Random(seed).shuffle(order)
        texts = setup.decode([jobs[n] for n in order], setup.max_batch, seed)
        different += sum(texts[at] != alone[n] for at, n in enumerate(order))
    ended = time.perf_counter()
    return {
        "windows": 2 * count,
        "different": different,
        "alone_s": round(between - began, 1),
        "together_s": round(ended - between, 1),
    }


def compare_graphs(tokenizer: Tokenizer, count: int) -> Result:
    """Let sequences come and go, on graphs and kernel by kernel; every size must be replayed."""
    config = make_config("base")
    weights = make_weights(config, DTYPE, DEVICE)
    crowds = [1, 2, 3, 6, 12, 24, 40, 64, 90, 128, 180, 256]
    texts: list[list[list[int]]] = []
    result: Result = {}
    for uses_graphs in (True, False):
        setup = set_up(config, weights, tokenizer, fold=25, uses_graphs=uses_graphs, max_batch=256)
        said: list[list[int]] = []
        for n, crowd in enumerate(crowds):
            jobs = make_jobs(
                max(count * crowd // sum(crowds), 4),
                tokenizer,
                n,
                longest_s=8.0,
                longest_text=40,
                longest_prompt=60 if crowd < 180 else 200,  # fills the largest sizes
            )
            jobs = [replace(job, aborts_after=None) for job in jobs]
            said += setup.decode(jobs, crowd, seed=n + 100 * uses_graphs)
        texts.append(said)
        graphs = setup.runner._graphs
        key = "graph" if uses_graphs else "eager"
        result[f"{key}_replays"], result[f"{key}_launched_singly"] = (
            graphs.num_replays,
            graphs.num_eager,
        )
        if uses_graphs:
            result["sizes"] = len(graphs.replays_by_size)
            result["sizes_replayed"] = sum(1 for n in graphs.replays_by_size.values() if n)
    result["sequences"] = len(texts[0])
    result["equal"] = sum(a == b for a, b in zip(*texts, strict=True))
    return result
