from __future__ import annotations

import pytest
import torch

pytestmark = pytest.mark.cuda


def test_logits_are_float32_and_the_same_bits_in_any_batch(
    device: torch.device, dtype: torch.dtype
) -> None:
    from engine.cuda.kernels.linear import row_linear
    from engine.cuda.layers import FEW_ROWS_TILING, MANY_ROWS_TILING

    torch.manual_seed(3)
    tiling = FEW_ROWS_TILING
    x = torch.randn(70, 256).to(device, dtype)
    weight = (torch.randn(203, 256) / 16).to(device, dtype)
    whole = row_linear(x, weight, tiling)
    assert whole.dtype is torch.float32 and whole.stride(0) == 256
    torch.testing.assert_close(whole, x.float() @ weight.float().T, rtol=1e-3, atol=1e-3)
    for row in (0, 31, 64, 69):
        assert torch.equal(row_linear(x[row : row + 1], weight, tiling), whole[row : row + 1])
    assert torch.equal(row_linear(x[10:53], weight, tiling), whole[10:53])
    assert torch.equal(row_linear(x, weight, MANY_ROWS_TILING), whole)
