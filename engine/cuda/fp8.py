"""The encoder's large products in 8-bit floating point, for GPUs that multiply them twice as fast.

Weights have a scale for each output. Activations have one for each row, found as it is computed, so
results are batch-invariant. The projection of the attention's output stays in
bfloat16, where the sum with the residual stream costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.cuda.kernels.quantise import FP8, FP8_MAX, quantise_gelu, quantise_norm
from engine.cuda.layers import MANY_ROWS_WARPS, CudaLayers
from engine.model.layers import Add, Pair, Project


@dataclass(slots=True)
class DeferredSum:
    """A sum with the residual stream that one layer leaves to the norm that follows."""

    addend: Tensor | None = None  # (N, C), from the layer until the norm

    def take(self) -> Tensor | None:
        addend, self.addend = self.addend, None
        return addend


class Fp8Layers(CudaLayers):
    """Layers of an encoder. Implements `engine.model.layers.Layers`."""

    def __init__(self) -> None:
        super().__init__(MANY_ROWS_WARPS)
        # the layer made last leaves its GELU to the one that quantises its output anyway
        self._defers_gelu = False
        # and its sum to the norm that reads the stream anyway
        self._deferred = DeferredSum()

    def project(self, norm: Pair, linear: Pair, *, with_gelu: bool = False) -> Project:
        gain, offset, shift = norm.weight, norm.bias, self.shift_like(norm.weight)
        weight, scale = quantise_weight(linear.weight)
        bias = linear.bias
        self._defers_gelu = with_gelu
        deferred, self._deferred = self._deferred, DeferredSum()

        def run(x: Tensor) -> Tensor:
            rows, row_scales = quantise_norm(x, shift, gain, offset, deferred.take())
            return multiply(rows, row_scales, weight, scale, bias)

        return run

    def norm(self, norm: Pair) -> Project:
        normed = super().norm(norm)
        deferred, self._deferred = self._deferred, DeferredSum()

        def run(x: Tensor) -> Tensor:
            addend = deferred.take()
            return normed(x if addend is None else x.add_(addend))

        return run

    def add(self, linear: Pair) -> Add:
        if not self._defers_gelu:
            return super().add(linear)
        self._defers_gelu = False
        self.add_shift(linear.bias)
        weight, scale = quantise_weight(linear.weight)
        deferred = self._deferred

        def run(x: Tensor, y: Tensor) -> Tensor:
            rows, row_scales = quantise_gelu(y)
            deferred.addend = multiply(rows, row_scales, weight, scale, None)
            return x

        return run


def quantise_weight(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Round a weight, (out, in), to (in, out) as cuBLAS wants it, with scales (1, out)."""
    scale = weight.float().abs().amax(dim=1, keepdim=True).clamp(min=1e-12) / FP8_MAX
    return (weight.float() / scale).to(FP8).t(), scale.t().contiguous()


def multiply(
    rows: Tensor, row_scales: Tensor, weight: Tensor, scale: Tensor, bias: Tensor | None
) -> Tensor:
    """Multiply (N, in) by (in, out), both in 8 bits: (N, out) bfloat16."""
    return torch._scaled_mm(
        rows,
        weight,
        scale_a=row_scales,
        scale_b=scale,
        bias=bias,
        out_dtype=torch.bfloat16,
        use_fast_accum=True,
    )
