"""Linear layers in the precisions that a device computes fast."""

from __future__ import annotations

from typing import Protocol

import torch.nn.functional as F
from torch import Tensor


class Linear(Protocol):
    """Compute x @ weight.T + bias over the last dimension."""

    def __call__(self, x: Tensor) -> Tensor: ...


class DenseLinear:
    """A linear layer in the weights' own floating-point type."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight = weight  # (out, in)
        self._bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self._weight, self._bias)
