"""Rounding rows to 8-bit floating point, together with the norm or the GELU before it."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.cuda.kernels.norm import EPSILON, normalise

FP8 = torch.float8_e4m3fn
FP8_MAX = 448.0  # the largest number of that type
GELU_BLOCK = 1024  # columns at once


@triton.jit
def quantise_norm_kernel(
    x,
    shift,
    weight,
    bias,
    out,
    scales,
    C: tl.constexpr,
    EPS: tl.constexpr,
    BLOCK: tl.constexpr,
    LARGEST: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    inside = c < C
    values = tl.load(x + row * C + c, mask=inside, other=0.0).to(tl.float32)
    values += tl.load(shift + c, mask=inside, other=0.0)
    normal = normalise(values, weight, bias, c, inside, C, EPS)
    largest = tl.maximum(tl.max(tl.abs(normal), axis=0), 1e-6)
    tl.store(scales + row, largest / LARGEST)
    tl.store(
        out + row * C + c, (normal * (LARGEST / largest)).to(out.dtype.element_ty), mask=inside
    )


@triton.jit
def quantise_gelu_kernel(
    x,
    out,
    scales,
    C: tl.constexpr,
    BLOCK: tl.constexpr,
    LARGEST: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    top = tl.full((BLOCK,), 0.0, dtype=tl.float32)
    for start in range(0, C, BLOCK):
        inside = start + c < C
        values = tl.load(x + row * C + start + c, mask=inside, other=0.0).to(tl.float32)
        top = tl.maximum(top, values)
    # GELU grows where it is positive, and is never below -0.17: its largest is where x's is
    largest = tl.maximum(tl.max(top, axis=0), 0.17)
    tl.store(scales + row, largest / LARGEST)
    for start in range(0, C, BLOCK):
        inside = start + c < C
        values = tl.load(x + row * C + start + c, mask=inside, other=0.0).to(tl.float32)
        # the same approximation as in cuBLAS, where it is part of the product
        inner = 1.5957691216057308 * values * (1.0 + 0.044715 * values * values)
        values = values / (1.0 + tl.exp(-inner)) * (LARGEST / largest)
        tl.store(out + row * C + start + c, values.to(out.dtype.element_ty), mask=inside)


def quantise_norm(x: Tensor, shift: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Round norm(x + shift) to 8 bits: (N, C) and the rows' scales, (N, 1) float32."""
    N, C = x.shape
    out = torch.empty(N, C, dtype=FP8, device=x.device)
    scales = torch.empty(N, 1, dtype=torch.float32, device=x.device)
    block = triton.next_power_of_2(C)
    quantise_norm_kernel[(N,)](
        x, shift, weight, bias, out, scales, C, EPSILON, block, FP8_MAX, num_warps=1
    )
    return out, scales


def quantise_gelu(x: Tensor) -> tuple[Tensor, Tensor]:
    """Round gelu(x) to 8 bits: (N, C) and the rows' scales, (N, 1) float32."""
    N, C = x.shape
    out = torch.empty(N, C, dtype=FP8, device=x.device)
    scales = torch.empty(N, 1, dtype=torch.float32, device=x.device)
    quantise_gelu_kernel[(N,)](x, out, scales, C, GELU_BLOCK, FP8_MAX, num_warps=4)
    return out, scales
