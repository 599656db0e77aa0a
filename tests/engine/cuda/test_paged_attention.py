"""The GPU's attention against the reference backend, through the same interface."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine.batching.page_pool import PagePool
from engine.checkpoint.model_config import ModelConfig
from engine.model.attention import Attention, DecoderRow
from engine.model.folded_tail import KeptPositions
from engine.model.sdpa import SdpaAttention

pytestmark = pytest.mark.cuda

CONFIG = ModelConfig(
    d_model=128,
    num_heads=2,
    encoder_layers=1,
    decoder_layers=2,
    encoder_ffn=256,
    decoder_ffn=256,
    vocab_size=200,
    num_mels=80,
    max_source_positions=600,
    max_target_positions=448,
    is_multilingual=True,
    alignment_heads=(),
    suppress_tokens=(),
    begin_suppress_tokens=(),
)
SELF_PAGE, CROSS_PAGE = 16, 50
EXTENTS = [
    KeptPositions(600),
    KeptPositions(37, 22, 25),
    KeptPositions(290, 12, 25),
    KeptPositions(128, 18, 25),
]


@pytest.fixture
def backends(device: torch.device, dtype: torch.dtype) -> tuple[Attention, Attention]:
    from engine.cuda.paged_attention import PagedAttention, Pools

    sizes = {
        "num_self_pages": 80,
        "self_page_size": SELF_PAGE,
        "num_cross_pages": 60,
        "cross_page_size": CROSS_PAGE,
    }
    reference = SdpaAttention(CONFIG, **sizes, dtype=torch.float32, device=torch.device("cpu"))
    pools = Pools(CONFIG, **sizes, num_slots=8, dtype=dtype, device=device)
    return reference, PagedAttention(pools, max_tokens=128)


def close(result: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(result.float().cpu(), expected.float(), rtol=2e-2, atol=2e-2)


# queries behind the last window belong to none, but Triton's interpreter takes their maximum too
@pytest.mark.filterwarnings("ignore:All-NaN:RuntimeWarning")
def test_windows_of_any_length_attend_within_themselves(
    backends: tuple[Attention, Attention], device: torch.device, dtype: torch.dtype
) -> None:
    reference, paged = backends
    N = sum(kept.num_positions for kept in EXTENTS)
    torch.manual_seed(1)
    qkv = torch.randn(N, 3, 2, 64).to(dtype)
    for backend in backends:
        backend.plan_encoder(EXTENTS)
    expected = reference.run_encoder(*qkv.float().unbind(1))
    # what lies behind the last window may be anything
    padded = torch.full((N + 40, 3, 2, 64), torch.nan, dtype=dtype)
    padded[:N] = qkv
    close(paged.run_encoder(*padded.to(device).unbind(1))[:N], expected)


def test_a_window_has_the_same_bits_in_blocks_of_either_size(
    device: torch.device, dtype: torch.dtype
) -> None:
    from engine.cuda.kernels.encoder import NARROW_QUERIES, WIDE_QUERIES, attend_windows
    from engine.cuda.paged_attention import lay_blocks, log2_weight

    torch.manual_seed(4)
    N = sum(kept.num_positions for kept in EXTENTS)
    q, k, v = torch.randn(N, 3, 2, 64).to(device, dtype).unbind(1)
    results = [
        attend_windows(
            *(q, k, v),
            torch.from_numpy(lay_blocks(EXTENTS, queries)).to(device),
            log2_weight(EXTENTS),
            queries,
        )
        for queries in (NARROW_QUERIES, WIDE_QUERIES)
    ]
    assert torch.equal(*results)


def test_steps_of_mixed_rows_equal_the_reference(
    backends: tuple[Attention, Attention], device: torch.device, dtype: torch.dtype
) -> None:
    """Prompts, drafts and single tokens in one pass, over scattered pages, three passes long."""
    torch.manual_seed(2)
    rng = np.random.default_rng(2)
    cross = PagePool(60, CROSS_PAGE)
    cross_pages = [cross.allocate(kept.num_positions) for kept in EXTENTS]
    cross_pages[1], cross_pages[3] = cross_pages[1][::-1], cross_pages[3][::-1]
    shuffled = [int(page) for page in rng.permutation(80)]
    self_pages = [tuple(shuffled[n * 12 : n * 12 + 12]) for n in range(len(EXTENTS))]
    N = sum(kept.num_positions for kept in EXTENTS)
    kv = torch.randn(N, 2, 2, 2, 64).to(dtype)
    for backend, to in zip(backends, ("cpu", device), strict=True):
        backend.plan_encoder(EXTENTS)
        backend.store_cross(cross_pages, kv.to(to) if to != "cpu" else kv.float())
    cached = [0, 0, 0, 0]
    for counts in ([40, 1, 3, 17], [1, 1, 1, 1], [1, 20, 16, 5]):
        rows = [
            DecoderRow(counts[n], cached[n], self_pages[n], cross_pages[n], EXTENTS[n])
            for n in range(4)
        ]
        for backend in backends:
            backend.plan_decoder(rows)
        for layer in range(2):
            qkv = torch.randn(sum(counts), 3, 2, 64).to(dtype)
            expected = backends[0].run_self(layer, *qkv.float().unbind(1))
            close(backends[1].run_self(layer, *qkv.to(device).unbind(1)), expected)
            expected = backends[0].run_cross(layer, qkv[:, 0].float())
            close(backends[1].run_cross(layer, qkv[:, 0].contiguous().to(device)), expected)
        cached = [c + n for c, n in zip(cached, counts, strict=True)]
    for backend in backends:
        assert backend.read_cross_keys(1, [1], cross_pages[1], 37).shape == (1, 37, 64)
    keys = [b.read_cross_keys(1, [1, 0], cross_pages[3], 140) for b in backends]
    close(keys[1], keys[0])


def test_a_token_has_the_same_bits_alone_and_in_a_draft(
    backends: tuple[Attention, Attention],
    device: torch.device,
    dtype: torch.dtype,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from engine.cuda import paged_attention as module

    torch.manual_seed(3)
    paged = backends[1]
    kept = KeptPositions(290, 12, 25)
    pages = tuple(range(7))
    paged.plan_encoder([kept])
    paged.store_cross([pages], torch.randn(302, 2, 2, 2, 64).to(device, dtype))
    qkv = torch.randn(70, 3, 2, 64).to(device, dtype)
    self_pages = tuple(range(5))

    def run(first: int, count: int) -> torch.Tensor:
        paged.plan_decoder([DecoderRow(count, first, self_pages, pages, kept)])
        q, k, v = qkv[first : first + count].unbind(1)
        return torch.cat([paged.run_self(0, q, k, v), paged.run_cross(0, q)], dim=2)

    alone = torch.cat([run(n, 1) for n in range(70)])
    assert torch.equal(run(0, 70), alone)
    # in a batch so large that windows are no longer shared out among programs
    monkeypatch.setattr(module, "MIN_UNSPLIT_PROGRAMS", 1)
    assert torch.equal(torch.cat([run(0, 5), run(5, 33), run(38, 32)]), alone)


def test_a_pool_may_have_more_elements_than_32_bits_count(
    device: torch.device, dtype: torch.dtype
) -> None:
    from engine.cuda.paged_attention import PagedAttention, Pools

    if device.type != "cuda" or torch.cuda.mem_get_info()[0] < 8 << 30:
        pytest.skip("needs 8 GB of GPU memory")
    num_pages = (3 << 30) // (2 * 2 * CROSS_PAGE * 64 * 2)  # 3 Gi elements in two layers
    pools = Pools(
        CONFIG,
        num_self_pages=1,
        self_page_size=SELF_PAGE,
        num_cross_pages=num_pages,
        cross_page_size=CROSS_PAGE,
        num_slots=1,
        dtype=dtype,
        device=device,
    )
    paged = PagedAttention(pools, max_tokens=1)
    kept = KeptPositions(37, 22, 25)
    pages = (num_pages - 2, num_pages - 1)
    kv = torch.randn(kept.num_positions, 2, 2, 2, 64).to(device, dtype)
    paged.plan_encoder([kept])
    paged.store_cross([pages], kv)
    for layer in range(2):
        keys = paged.read_cross_keys(layer, [0, 1], pages, kept.num_positions)
        assert torch.equal(keys, kv[:, layer, 0].transpose(0, 1))
