"""The parts between the attentions, as a device computes them best.

A model is a stack of these: a norm with the linear layer after it, and a linear layer with the sum
after it. Whether those are one kernel or three is a device's own business.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch.nn.functional as F
from torch import Tensor

from engine.model.linear import Linear

LinearMaker = Callable[[Tensor, Tensor | None], Linear]
Project = Callable[[Tensor], Tensor]  # (N, in) -> (N, out)
Add = Callable[[Tensor, Tensor], Tensor]  # x, y -> x + linear(y); it may overwrite x


@dataclass(frozen=True, slots=True)
class Pair:
    """The two tensors of a norm or of a linear layer."""

    weight: Tensor
    bias: Tensor


class Layers(Protocol):
    """Makes the parts of one stack, asked for in the order in which they are applied."""

    def project(self, norm: Pair, linear: Pair, *, with_gelu: bool = False) -> Project:
        """Make linear(norm(x)), or gelu of that."""
        ...

    def add(self, linear: Pair) -> Add:
        """Make x + linear(y)."""
        ...

    def norm(self, norm: Pair) -> Project:
        """Make norm(x)."""
        ...

    def linear(self, linear: Pair) -> Project:
        """Make linear(x)."""
        ...

    def logits(self, weight: Tensor) -> Project:
        """Make the projection onto the vocabulary."""
        ...

    def convolve(self, convolution: Pair, stride: int) -> Project:
        """Make gelu(convolution(x)) of three columns: (B, in, F) -> (B, out, F / stride)."""
        ...


class PlainLayers:
    """Layers of PyTorch's own operators, on any device."""

    def __init__(self, make_linear: LinearMaker) -> None:
        self._make_linear = make_linear

    def project(self, norm: Pair, linear: Pair, *, with_gelu: bool = False) -> Project:
        normalise, multiply = self.norm(norm), self.linear(linear)
        if with_gelu:
            return lambda x: F.gelu(multiply(normalise(x)))
        return lambda x: multiply(normalise(x))

    def add(self, linear: Pair) -> Add:
        multiply = self.linear(linear)
        return lambda x, y: x + multiply(y)

    def norm(self, norm: Pair) -> Project:
        return lambda x: F.layer_norm(x, norm.weight.shape, norm.weight, norm.bias)

    def linear(self, linear: Pair) -> Project:
        return self._make_linear(linear.weight, linear.bias)

    def logits(self, weight: Tensor) -> Project:
        return self._make_linear(weight, None)

    def convolve(self, convolution: Pair, stride: int) -> Project:
        weight, bias = convolution.weight, convolution.bias
        return lambda x: F.gelu(F.conv1d(x, weight, bias, stride=stride, padding=1))
