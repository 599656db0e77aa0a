"""The projection onto the vocabulary: few rows, and logits in float32."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

LINE = 64  # elements of bfloat16 in a cache line of 128 bytes


@dataclass(frozen=True, slots=True)
class Tiling:
    """How a product is cut up."""

    block_m: int
    block_n: int
    block_k: int
    num_stages: int
    num_warps: int


# a number of rows of 1 or 16 must not make another kernel, with other bits
@triton.jit(do_not_specialize=["M"])
def row_linear_kernel(
    x,
    w,
    out,
    M,
    N,
    K: tl.constexpr,
    stride_x,
    stride_out,
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
    for _ in range(0, K, BLOCK_K):
        a = tl.load(x_at, mask=is_row[:, None], other=0.0)
        b = tl.load(w_at, mask=is_column[None, :], other=0.0)
        product = tl.dot(a, b, product)
        x_at += BLOCK_K
        w_at += BLOCK_K
    where = rows[:, None].to(tl.int64) * stride_out + columns[None, :]
    tl.store(
        out + where, product.to(out.dtype.element_ty), mask=is_row[:, None] & is_column[None, :]
    )


def row_linear(x: Tensor, weight: Tensor, tiling: Tiling) -> Tensor:
    """Compute x @ weight.T in float32: (M, K) and (N, K) -> (M, N), rows at whole cache lines.

    K must be a multiple of the tiling's block.
    """
    M, K = x.shape
    N = weight.shape[0]
    assert K % tiling.block_k == 0 and x.stride(1) == 1, (K, tiling, x.stride())
    width = -(-N // LINE) * LINE
    out = torch.empty(M, width, dtype=torch.float32, device=x.device)[:, :N]
    row_linear_kernel[(triton.cdiv(N, tiling.block_n), triton.cdiv(M, tiling.block_m))](
        x,
        weight,
        out,
        M,
        N,
        K,
        x.stride(0),
        out.stride(0),
        BLOCK_M=tiling.block_m,
        BLOCK_N=tiling.block_n,
        BLOCK_K=tiling.block_k,
        num_stages=tiling.num_stages,
        num_warps=tiling.num_warps,
    )
    return out
