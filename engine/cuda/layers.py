"""Norms and linear layers on a GPU: cuBLAS for the products, and nothing between them but a norm.

Sums are made where the product is (C += A B), and the biases of such layers never touch the
residual stream: their running total is a constant, added where the stream is normalised.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.cuda.kernels.linear import Tiling, row_linear
from engine.cuda.kernels.norm import norm as normalise
from engine.model.layers import Add, Pair, Project

# Of the projection onto the vocabulary, the best of those that were tried at 1 to 256 rows. Both
# add in steps of 16 along k, so a row is bitwise equal from either.
FEW_ROWS_TILING = Tiling(block_m=64, block_n=128, block_k=64, num_stages=4, num_warps=4)
MANY_ROWS_TILING = Tiling(block_m=128, block_n=128, block_k=64, num_stages=4, num_warps=8)

# for each row of a norm
MANY_ROWS_WARPS, FEW_ROWS_WARPS = 1, 8


class CudaLayers:
    """Layers of one stack, in the weights' own type. Implements `engine.model.layers.Layers`."""

    def __init__(self, norm_warps: int) -> None:
        """Begin a stack.

        Args:
            norm_warps: MANY_ROWS_WARPS for an encoder, FEW_ROWS_WARPS for a decoder.
        """
        self._norm_warps = norm_warps
        # the biases of all layers so far that were added to the stream; None before the first
        self._shift: Tensor | None = None

    def project(self, norm: Pair, linear: Pair, *, with_gelu: bool = False) -> Project:
        normed = self.norm(norm)
        weight, bias = linear.weight.t(), linear.bias
        if with_gelu:
            # computed as the product is written; cuBLAS approximates the error function by tanh
            return lambda x: torch._addmm_activation(bias, normed(x), weight, use_gelu=True)
        return lambda x: torch.addmm(bias, normed(x), weight)

    def add(self, linear: Pair) -> Add:
        self.add_shift(linear.bias)
        weight = linear.weight.t()
        return lambda x, y: x.addmm_(y, weight)

    def norm(self, norm: Pair) -> Project:
        weight, bias, shift = norm.weight, norm.bias, self.shift_like(norm.weight)
        return lambda x: normalise(x, shift, weight, bias, self._norm_warps)

    def linear(self, linear: Pair) -> Project:
        weight, bias = linear.weight.t(), linear.bias
        return lambda x: torch.addmm(bias, x, weight)

    def logits(self, weight: Tensor) -> Project:
        """Make the projection onto the vocabulary, in float32: bfloat16 would make ties."""
        return lambda x: row_linear(
            x, weight, FEW_ROWS_TILING if len(x) <= 64 else MANY_ROWS_TILING
        )

    def convolve(self, convolution: Pair, stride: int) -> Project:
        """Make a convolution as a product: cuDNN's choice of algorithm depends on the batch."""
        C, inner, width = convolution.weight.shape
        weight, bias = convolution.weight.reshape(C, inner * width).t(), convolution.bias

        def run(x: Tensor) -> Tensor:
            seen = F.pad(x, (1, 1)).unfold(2, width, stride)  # (B, in, F, 3)
            B, _, num_frames, _ = seen.shape
            rows = seen.transpose(1, 2).reshape(B * num_frames, inner * width)
            out = torch._addmm_activation(bias, rows, weight, use_gelu=True)
            return out.view(B, num_frames, C).transpose(1, 2)

        return run

    def add_shift(self, bias: Tensor) -> None:
        """Record a bias that is left out of the stream from here on."""
        self._shift = bias.float() if self._shift is None else self._shift + bias.float()

    def shift_like(self, weight: Tensor) -> Tensor:
        """Return what the stream lacks here: (C,) float32."""
        if self._shift is None:
            return torch.zeros_like(weight, dtype=torch.float32)
        return self._shift
