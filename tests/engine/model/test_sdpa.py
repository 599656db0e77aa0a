"""The reference backend against attention written out over dense tensors."""

from __future__ import annotations

import dataclasses
import math

import psutil
import pytest
import torch
from torch import Tensor

from engine.checkpoint.model_config import ModelConfig
from engine.model.attention import DecoderRow
from engine.model.folded_tail import KeptPositions
from engine.model.sdpa import SdpaAttention, make_zeros

H, D, L, P = 2, 64, 2, 60
CONFIG = ModelConfig(
    d_model=H * D,
    num_heads=H,
    encoder_layers=1,
    decoder_layers=L,
    encoder_ffn=8,
    decoder_ffn=8,
    vocab_size=10,
    num_mels=80,
    max_source_positions=P,
    max_target_positions=64,
    is_multilingual=False,
    alignment_heads=(),
    suppress_tokens=(),
    begin_suppress_tokens=(),
)
FULL = KeptPositions(P)
FOLDED = KeptPositions(20, 4, 10)


def make_attention(config: ModelConfig = CONFIG) -> SdpaAttention:
    return SdpaAttention(
        config,
        num_self_pages=16,
        self_page_size=16,
        num_cross_pages=24,
        cross_page_size=10,
        dtype=torch.float32,
        device=torch.device("cpu"),
    )


def test_a_pool_takes_memory_only_once_it_is_written() -> None:
    process = psutil.Process()
    before = process.memory_info().rss
    pool = make_zeros((1 << 28,), torch.float32, torch.device("cpu"))  # 1 GB
    assert process.memory_info().rss - before < 1 << 26
    assert pool.shape == (1 << 28,) and not pool[-1000:].any()
    pool[5] = 1.0
    assert pool[4:7].tolist() == [0.0, 1.0, 0.0]


def random(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | float = 0.0) -> Tensor:
    """(T, H, D) from (S, H, D), in the order of the formula."""
    logits = torch.einsum("thd,shd->hts", q, k) / math.sqrt(D) + bias
    return torch.einsum("hts,shd->thd", logits.softmax(dim=-1), v)


def fold_bias(kept: KeptPositions) -> Tensor:
    bias = torch.zeros(kept.num_positions)
    bias[kept.num_full :] = math.log(kept.weight)
    return bias


def test_windows_of_a_batch_do_not_see_each_other() -> None:
    attention = make_attention()
    kept_positions = [FOLDED, FULL, FOLDED]
    sizes = [kept.num_positions for kept in kept_positions]
    q, k, v = (random(sum(sizes), H, D, seed=n) for n in range(3))
    attention.plan_encoder(kept_positions)
    output = attention.run_encoder(q, k, v).split(sizes)
    for n, kept in enumerate(kept_positions):
        expected = attend(*(x.split(sizes)[n] for x in (q, k, v)), fold_bias(kept))
        torch.testing.assert_close(output[n], expected)


def test_a_folded_position_counts_as_often_as_it_stands_for() -> None:
    attention = make_attention()
    kept = KeptPositions(3, 2, 5)
    q, k, v = (random(5, H, D, seed=n) for n in range(3))
    attention.plan_encoder([kept])
    output = attention.run_encoder(q, k, v)
    times = torch.tensor([1, 1, 1, 5, 5])
    k, v = (x.repeat_interleave(times, dim=0) for x in (k, v))
    torch.testing.assert_close(output, attend(q, k, v))


@pytest.mark.parametrize("is_scattered", [False, True])
def test_paged_equals_dense(is_scattered: bool) -> None:
    """Two rows, a prompt and then single tokens, in pages in one run and in scattered ones."""
    attention = make_attention()
    self_pages = [(1, 4, 9), (0, 6, 11)] if is_scattered else [(0, 1, 2), (5, 6, 7)]
    cross_pages = [(0, 7, 3), (9, 11, 13, 15, 17, 19)]
    if not is_scattered:
        cross_pages = [(0, 1, 2), (6, 7, 8, 9, 10, 11)]
    kept_positions = [FOLDED, FULL]
    sizes = [kept.num_positions for kept in kept_positions]
    cross = random(sum(sizes), L, 2, H, D, seed=5)
    attention.plan_encoder(kept_positions)
    attention.store_cross(cross_pages, cross)
    lengths = [40, 37]
    q, k, v = ([random(L, n, H, D, seed=10 * n + m) for n in lengths] for m in range(3))
    done = [0, 0]
    for counts in ([14, 13], [1, 1], [25, 23]):
        attention.plan_decoder(
            [
                DecoderRow(counts[r], done[r], self_pages[r], cross_pages[r], kept_positions[r])
                for r in range(2)
            ]
        )
        new = [slice(done[r], done[r] + counts[r]) for r in range(2)]
        for layer in range(L):
            packed = [torch.cat([x[r][layer, new[r]] for r in range(2)]) for x in (q, k, v)]
            self_output = attention.run_self(layer, *packed).split(counts)
            cross_output = attention.run_cross(layer, packed[0]).split(counts)
            for r in range(2):
                seen = new[r].stop
                causal = torch.full((counts[r], seen), -math.inf).triu(done[r] + 1)
                torch.testing.assert_close(
                    self_output[r],
                    attend(q[r][layer, new[r]], k[r][layer, :seen], v[r][layer, :seen], causal),
                )
                kv = cross.split(sizes)[r][:, layer]
                torch.testing.assert_close(
                    cross_output[r],
                    attend(q[r][layer, new[r]], kv[:, 0], kv[:, 1], fold_bias(kept_positions[r])),
                )
        done = [done[r] + counts[r] for r in range(2)]


@pytest.mark.parametrize("num_threads", [1, 2])
def test_attention_is_batch_invariant(num_threads: int) -> None:
    """A draft checked in one pass, and the same tokens one by one."""
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        T = 200
        config = dataclasses.replace(CONFIG, max_target_positions=T)
        q, k, v = (random(T, H, D, seed=n) for n in range(3))
        cross = random(FULL.num_positions, L, 2, H, D, seed=4)
        self_pages, cross_pages = tuple(range(13)), tuple(range(6))

        def run(sizes: list[int]) -> list[Tensor]:
            attention = make_attention(config)
            attention.plan_encoder([FULL])
            attention.store_cross([cross_pages], cross)
            outputs = []
            done = 0
            for size in sizes:
                attention.plan_decoder([DecoderRow(size, done, self_pages, cross_pages, FULL)])
                new = slice(done, done + size)
                outputs.append(
                    torch.cat(
                        [
                            attention.run_self(0, q[new], k[new], v[new]),
                            attention.run_cross(0, q[new]),
                        ],
                        dim=1,
                    )
                )
                done += size
            return list(torch.cat(outputs))

        single = run([1] * T)
        for sizes in ([T], [3, 40, 1, 2, 100, 54], [37, 5, 7, 151]):
            different = [n for n, x in enumerate(run(sizes)) if not torch.equal(x, single[n])]
            assert not different
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("pages", [(2, 3, 4), (8, 1, 5)])
def test_cross_keys_are_read_back_for_some_heads(pages: tuple[int, ...]) -> None:
    attention = make_attention()
    cross = random(FOLDED.num_positions, L, 2, H, D, seed=1)
    attention.plan_encoder([FOLDED])
    attention.store_cross([pages], cross)
    keys = attention.read_cross_keys(1, [1], pages, 20)
    torch.testing.assert_close(keys, cross[:20, 1, 0, 1][None])
