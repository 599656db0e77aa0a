"""Linear layers in the precisions that a device computes fast."""

from __future__ import annotations

import warnings
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

# On a CPU, float32 products of fewer rows than this round differently unless their number is a
# multiple of four. Results would then depend on what else is in the batch, so the rows are padded.
MIN_UNPADDED_ROWS = 16
ROW_MULTIPLE = 4


class Linear(Protocol):
    """Compute x @ weight.T + bias: (N, in) -> (N, out)."""

    def __call__(self, x: Tensor) -> Tensor: ...


class DenseLinear:
    """A linear layer in the weights' own floating-point type."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight = weight  # (out, in)
        self._bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        num_rows = x.shape[0]
        if num_rows < MIN_UNPADDED_ROWS and num_rows % ROW_MULTIPLE and x.device.type == "cpu":
            x = F.pad(x, (0, 0, 0, -num_rows % ROW_MULTIPLE))
            return F.linear(x, self._weight, self._bias)[:num_rows]
        return F.linear(x, self._weight, self._bias)


class Int8Linear:
    """A linear layer with 8-bit weights and activations, on a CPU, float32 outside.

    Each output of the weights has its scale, and so has each row of x, found as it comes. Sums of
    products are integers, hence exact: a row's result is batch-invariant.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        scale = weight.abs().amax(dim=1).clamp(min=1e-12) / 127  # (out,)
        quantised = (weight / scale[:, None]).round().to(torch.int8)
        self._bias = torch.zeros(weight.shape[0]) if bias is None else bias
        # products of 8 by 8 bits overflow in processors without VNNI; of 7 by 8 bits they do not
        self._levels = 127 if torch.cpu._is_vnni_supported() else 63
        engine = torch.backends.quantized.engine
        with warnings.catch_warnings():
            # announces that a later torch drops these tensors; `has_int8` then says so
            warnings.simplefilter("ignore", UserWarning)
            torch.backends.quantized.engine = "fbgemm"
            try:
                self._packed: Any = torch.ops.quantized.linear_prepack(
                    torch._make_per_channel_quantized_tensor(
                        quantised, scale.double(), torch.zeros(len(scale), dtype=torch.int64), 0
                    ),
                    None,
                )
            finally:
                torch.backends.quantized.engine = engine
        self._multiply = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32.default

    def __call__(self, x: Tensor) -> Tensor:
        # a row of zeros stays one
        scale = x.abs().amax(dim=1, keepdim=True).clamp_(min=1e-12)  # (N, 1)
        product = self._multiply(x / scale, 1 / self._levels, self._levels, self._packed)
        return torch.addcmul(self._bias, product, scale, out=product)


def has_int8() -> bool:
    """Return whether this processor multiplies 8-bit integers fast and this torch supports it."""
    return torch.cpu._is_vnni_supported() and "fbgemm" in torch.backends.quantized.supported_engines
