"""Rounding rows to 8-bit floating point, together with the norm or the GELU before it."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.cuda.kernels.norm import EPSILON, normalise

FP8 = torch.float8_e4m3fn
FP8_MAX = 448.0  # the largest number of that type


@triton.jit
def quantise_norm_kernel(
    x,
    shift,
    weight,
    bias,
    addend,
    out,
    scales,
    C: tl.constexpr,
    EPS: tl.constexpr,
    BLOCK: tl.constexpr,
    LARGEST: tl.constexpr,
    ADDS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    inside = c < C
    values = tl.load(x + row * C + c, mask=inside, other=0.0)
    if ADDS:
        values += tl.load(addend + row * C + c, mask=inside, other=0.0)
        tl.store(x + row * C + c, values, mask=inside)
    values = values.to(tl.float32)
    values += tl.load(shift + c, mask=inside, other=0.0)
    normal = normalise(values, weight, bias, c, inside, C, EPS)
    largest = tl.maximum(tl.max(tl.abs(normal), axis=0), 1e-6)
    tl.store(scales + row, largest / LARGEST)
    tl.store(
        out + row * C + c, (normal * (LARGEST / largest)).to(out.dtype.element_ty), mask=inside
    )


@triton.jit
def scaled_gelu(x, scale):
    """Return gelu(x) * scale by the approximation that cuBLAS fuses with a product."""
    inner = 0.7978845608028654 * x * (1.0 + 0.044715 * x * x)
    bent = tl.inline_asm_elementwise(
        "tanh.approx.f32 $0, $1;", "=f,f", [inner], dtype=tl.float32, is_pure=True, pack=1
    )
    half = x * (0.5 * scale)
    return half * bent + half


@triton.jit
def quantise_gelu_kernel(
    x,
    out,
    scales,
    C: tl.constexpr,
    MOST: tl.constexpr,
    REST: tl.constexpr,
    LARGEST: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    # two blocks, each a power of two, hold less nothing than one
    c = tl.arange(0, MOST)
    r = MOST + tl.arange(0, REST)
    inside = r < C
    values = tl.load(x + row * C + c)
    others = tl.load(x + row * C + r, mask=inside, other=0.0)
    largest = tl.maximum(tl.max(values, axis=0), tl.max(others, axis=0)).to(tl.float32)
    # GELU grows where it is positive, and is never below -0.17: its largest is where x's is
    largest = tl.maximum(largest, 0.17)
    tl.store(scales + row, largest / LARGEST)
    scale = LARGEST / largest
    values = scaled_gelu(values.to(tl.float32), scale)
    others = scaled_gelu(others.to(tl.float32), scale)
    tl.store(out + row * C + c, values.to(out.dtype.element_ty))
    tl.store(out + row * C + r, others.to(out.dtype.element_ty), mask=inside)


def quantise_norm(
    x: Tensor, shift: Tensor, weight: Tensor, bias: Tensor, addend: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Round norm(x + shift) to 8 bits: (N, C) and the rows' scales, (N, 1) float32.

    Args:
        shift: (C,) float32. weight and bias: (C,).
        addend: (N, C), added to x, in place, before that.
    """
    N, C = x.shape
    assert x.is_contiguous()
    out = torch.empty(N, C, dtype=FP8, device=x.device)
    scales = torch.empty(N, 1, dtype=torch.float32, device=x.device)
    block = triton.next_power_of_2(C)
    adds = addend is not None
    quantise_norm_kernel[(N,)](
        x, shift, weight, bias, addend, out, scales, C, EPSILON, block, FP8_MAX, adds, num_warps=1
    )
    return out, scales


def quantise_gelu(x: Tensor) -> tuple[Tensor, Tensor]:
    """Round gelu(x) to 8 bits: (N, C) and the rows' scales, (N, 1) float32."""
    N, C = x.shape
    out = torch.empty(N, C, dtype=FP8, device=x.device)
    scales = torch.empty(N, 1, dtype=torch.float32, device=x.device)
    most = 1 << (C.bit_length() - 1)
    rest = max(triton.next_power_of_2(C - most), 16)
    quantise_gelu_kernel[(N,)](x, out, scales, C, most, rest, FP8_MAX, num_warps=4)
    return out, scales
