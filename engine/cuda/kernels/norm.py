"""Norms of rows."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

EPSILON = 1e-5  # torch.nn.LayerNorm


@triton.jit
def normalise(values, weight, bias, c, inside, C: tl.constexpr, EPS: tl.constexpr):
    """Normalise one row of C values, float32, that lie in `inside` of a block."""
    mean = tl.sum(values, axis=0) / C
    centred = tl.where(inside, values - mean, 0.0)
    variance = tl.sum(centred * centred, axis=0) / C
    normal = centred * tl.rsqrt(variance + EPS)
    normal = normal * tl.load(weight + c, mask=inside, other=0.0).to(tl.float32)
    return normal + tl.load(bias + c, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def norm_kernel(
    x,
    shift,
    weight,
    bias,
    out,
    C: tl.constexpr,
    EPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    inside = c < C
    values = tl.load(x + row * C + c, mask=inside, other=0.0).to(tl.float32)
    values += tl.load(shift + c, mask=inside, other=0.0)
    normal = normalise(values, weight, bias, c, inside, C, EPS)
    tl.store(out + row * C + c, normal.to(out.dtype.element_ty), mask=inside)


def norm(x: Tensor, shift: Tensor, weight: Tensor, bias: Tensor, num_warps: int) -> Tensor:
    """Normalise the rows of x + shift: (N, C) -> (N, C).

    Args:
        shift: (C,) float32. weight and bias: (C,), as narrow as they are stored, for they are read
            again for every row.
        num_warps: for each row. One where rows are many: it waits for no other, and many rows
            share a processor. Eight where they are few. The bits depend on it.
    """
    N, C = x.shape
    assert x.is_contiguous()
    out = torch.empty_like(x)
    norm_kernel[(N,)](
        x, shift, weight, bias, out, C, EPSILON, triton.next_power_of_2(C), num_warps=num_warps
    )
    return out
