"""The GPU's runner against the eager one, and graphs against eager kernels."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from benchmarks.support.jobs import Job, make_jobs, run_jobs
from benchmarks.support.random_model import make_config, make_weights
from engine.batching.counters import Counters
from engine.batching.loop import ModelRunner
from engine.batching.page_pool import PagePool
from engine.batching.runner import EagerRunner
from engine.batching.scheduler import Scheduler
from engine.batching.sequence import Sequence
from engine.checkpoint.weights import Weights
from engine.decoding.rules import build_rules
from engine.decoding.tokenizer import Tokenizer
from engine.model.sdpa import SdpaAttention
from engine.model.whisper import Whisper
from tests.support.models import LoadedModel

pytestmark = [pytest.mark.cuda, pytest.mark.model]

FOLD = 25
PAGES = (60, 16, 130, 50)  # self pages and their size, cross pages and theirs
CONFIG = make_config("test")


@pytest.fixture(scope="module")
def tokenizer(base: LoadedModel) -> Tokenizer:
    return base.tokenizer


@pytest.fixture(scope="module")
def kind(device: torch.device) -> torch.dtype:
    # the interpreter computes in float32, so that tokens equal those of the reference
    return torch.bfloat16 if device.type == "cuda" else torch.float32


@pytest.fixture(scope="module")
def weights() -> Weights:
    return make_weights(CONFIG, torch.float32, torch.device("cpu"))


def make_scheduler() -> tuple[Scheduler, tuple[PagePool, PagePool]]:
    pools = (PagePool(PAGES[0], PAGES[1]), PagePool(PAGES[2], PAGES[3]))
    scheduler = Scheduler(
        *pools, max_batch=6, max_encode_batch=3, max_encode_positions=2000, max_waiting=100
    )
    return scheduler, pools


def build_cuda(
    weights: Weights, tokenizer: Tokenizer, kind: torch.dtype, device: torch.device, graphs: bool
) -> ModelRunner:
    from engine.cuda.build import Limits, PoolSizes, build_model, build_runner

    moved = {name: tensor.to(device, kind) for name, tensor in weights.items()}
    limits = Limits(6, 128, 3, 2000, FOLD, uses_graphs=graphs)
    rules = build_rules(CONFIG, tokenizer, device=device)
    sizes = PoolSizes(*PAGES)
    model = build_model(CONFIG, moved)
    return build_runner(model, rules, tokenizer, Counters(), sizes, limits, kind, device)


def run_plain(jobs: list[Job], weights: Weights, tokenizer: Tokenizer) -> list[Sequence]:
    attention = SdpaAttention(
        CONFIG,
        num_self_pages=PAGES[0],
        self_page_size=PAGES[1],
        num_cross_pages=PAGES[2],
        cross_page_size=PAGES[3],
        dtype=torch.float32,
        device=torch.device("cpu"),
    )
    rules = build_rules(CONFIG, tokenizer)
    model = Whisper(CONFIG, weights)
    runner = EagerRunner(model, attention, rules, tokenizer, torch.device("cpu"), Counters())
    return run_jobs(jobs, runner, make_scheduler()[0], tokenizer, fold=FOLD, at_once=1)


def with_drafts(jobs: list[Job], texts: list[list[int]]) -> list[Job]:
    """Return each job with a draft that is right at first, then wrong, then right again."""
    drafted = []
    for n, (job, text) in enumerate(zip(jobs, texts, strict=True)):
        draft = list(text)
        if len(draft) > 6:
            draft[len(draft) // 2] = 11
            if n % 2:
                del draft[len(draft) // 3]
        drafted.append(dataclasses.replace(job, draft=tuple(draft)))
    return drafted


@pytest.mark.timeout(900)  # the interpreter takes minutes
def test_texts_equal_those_of_the_eager_runner_in_any_batch(
    device: torch.device, kind: torch.dtype, weights: Weights, tokenizer: Tokenizer
) -> None:
    if device.type == "cuda":
        pytest.skip("bfloat16 rounds otherwise than the reference")
    jobs = make_jobs(4, tokenizer, 1, longest_s=2.0, longest_text=10, longest_prompt=20)
    jobs = [dataclasses.replace(job, aborts_after=None) for job in jobs]
    expected = run_plain(jobs, weights, tokenizer)
    drafted = with_drafts(jobs, [s.tokens for s in expected])
    runner = build_cuda(weights, tokenizer, kind, device, False)
    scheduler, pools = make_scheduler()
    sequences = run_jobs(drafted, runner, scheduler, tokenizer, fold=FOLD, at_once=4)
    for sequence, plain in zip(sequences, expected, strict=True):
        assert sequence.tokens == plain.tokens
        assert sequence.logprobs == pytest.approx(plain.logprobs, abs=2e-2)
        assert sequence.no_speech_probability == pytest.approx(
            plain.no_speech_probability, rel=2e-2
        )
    assert [pool.num_free for pool in pools] == [PAGES[0], PAGES[2]]
    assert sum(s.num_accepted for s in sequences) > 0


def test_graphs_equal_eager_over_random_arrivals(
    device: torch.device, kind: torch.dtype, weights: Weights, tokenizer: Tokenizer
) -> None:
    if device.type != "cuda":
        pytest.skip("there are no graphs without a GPU")
    jobs = make_jobs(100, tokenizer, 2)
    texts = []
    for graphs in (True, False):
        runner = build_cuda(weights, tokenizer, kind, device, graphs)
        scheduler, pools = make_scheduler()
        done = run_jobs(jobs, runner, scheduler, tokenizer, fold=FOLD, at_once=6, seed=int(graphs))
        texts.append([s.tokens for s, job in zip(done, jobs, strict=True) if not job.aborts_after])
        assert [pool.num_free for pool in pools] == [PAGES[0], PAGES[2]]
    assert texts[0] == texts[1]
    assert len({tuple(text) for text in texts[0]}) > 50
