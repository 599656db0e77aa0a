"""Linear layers of few rows, with what comes before and after them in one kernel.

A decode step has one row for each sequence, so its time is that of reading the weights and of
starting kernels. The norm before a layer, and the bias, the GELU and the sum after it, cost nothing
where the weights are read anyway.
"""

# Triton compiles these functions; their arguments are not Python values
# mypy: allow-untyped-defs, allow-untyped-calls, disable-error-code="misc,untyped-decorator"

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

EPSILON = 1e-5  # torch.nn.LayerNorm


@dataclass(frozen=True, slots=True)
class Tiling:
    """How a product is cut up. The same for every number of rows, or the bits would change."""

    block_m: int
    block_n: int
    block_k: int
    num_stages: int
    num_warps: int


@triton.jit
def row_linear_kernel(
    x,
    w,
    bias,
    column_sums,
    residual,
    out,
    M,
    N,
    K: tl.constexpr,
    stride_x,
    HAS_NORM: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_GELU: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr,
    EPS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    rows = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    is_row = rows < M
    is_column = columns < N
    x_at = x + rows[:, None] * stride_x + ks[None, :]
    w_at = w + columns[None, :].to(tl.int64) * K + ks[:, None]
    product = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    total = tl.zeros((BLOCK_M,), dtype=tl.float32)
    squares = tl.zeros((BLOCK_M,), dtype=tl.float32)
    for _ in range(0, K, BLOCK_K):
        a = tl.load(x_at, mask=is_row[:, None], other=0.0)
        b = tl.load(w_at, mask=is_column[None, :], other=0.0)
        product = tl.dot(a, b, product)
        if HAS_NORM:
            a32 = a.to(tl.float32)
            total += tl.sum(a32, axis=1)
            squares += tl.sum(a32 * a32, axis=1)
        x_at += BLOCK_K
        w_at += BLOCK_K
    if HAS_NORM:
        mean = total / K
        deviation = tl.rsqrt(tl.maximum(squares / K - mean * mean, 0.0) + EPS)
        sums = tl.load(column_sums + columns, mask=is_column, other=0.0)
        product = (product - mean[:, None] * sums[None, :]) * deviation[:, None]
    if HAS_BIAS:
        product += tl.load(bias + columns, mask=is_column, other=0.0)[None, :]
    if HAS_GELU:
        product = 0.5 * product * (1.0 + tl.erf(product * 0.7071067811865476))
    where = rows[:, None].to(tl.int64) * N + columns[None, :]
    inside = is_row[:, None] & is_column[None, :]
    if HAS_RESIDUAL:
        product += tl.load(residual + where, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + where, product.to(out.dtype.element_ty), mask=inside)


def row_linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    tiling: Tiling,
    *,
    column_sums: Tensor | None = None,
    residual: Tensor | None = None,
    with_gelu: bool = False,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """Compute residual + gelu(norm(x) @ weight.T + bias), each part where it is given.

    Args:
        x: (M, K), rows contiguous.
        weight: (N, K), K a multiple of the tiling's block.
        bias: (N,) float32.
        column_sums: (N,) float32, the sums of the weight's rows; given, x is normalised first.
            The norm's own weight and bias are folded into `weight` and `bias` by `fold_norm`.
        residual: (M, N).
        out_dtype: of the result; that of x by default.
    """
    M, K = x.shape
    N = weight.shape[0]
    assert K % tiling.block_k == 0 and x.stride(1) == 1, (K, tiling, x.stride())
    out = torch.empty(M, N, dtype=out_dtype or x.dtype, device=x.device)
    grid = (triton.cdiv(N, tiling.block_n), triton.cdiv(M, tiling.block_m))
    row_linear_kernel[grid](
        x,
        weight,
        bias,
        column_sums,
        residual,
        out,
        M,
        N,
        K,
        x.stride(0),
        HAS_NORM=column_sums is not None,
        HAS_BIAS=bias is not None,
        HAS_GELU=with_gelu,
        HAS_RESIDUAL=residual is not None,
        EPS=EPSILON,
        BLOCK_M=tiling.block_m,
        BLOCK_N=tiling.block_n,
        BLOCK_K=tiling.block_k,
        num_stages=tiling.num_stages,
        num_warps=tiling.num_warps,
    )
    return out


@dataclass(frozen=True, slots=True)
class FoldedLinear:
    """A linear layer that has taken over the weight and the bias of the norm before it."""

    weight: Tensor  # (N, K)
    bias: Tensor  # (N,) float32
    column_sums: Tensor  # (N,) float32, of the weight as rounded


def fold_norm(
    norm_weight: Tensor, norm_bias: Tensor, weight: Tensor, bias: Tensor | None
) -> FoldedLinear:
    """Fold a norm into the layer after it: W (g n + b) + c = (W g) n + (W b + c), n normalised.

    With n = (x - mean) / deviation, W n = (W x - mean sum(W)) / deviation: the kernel multiplies x
    as it is and needs nothing of the norm but two numbers a row.
    """
    wide = weight.float()
    folded = (wide * norm_weight.float()).to(weight.dtype)
    shift = wide @ norm_bias.float()
    return FoldedLinear(
        folded,
        shift if bias is None else shift + bias.float(),
        folded.float().sum(dim=1),
    )
