from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

pytestmark = pytest.mark.cuda


@pytest.mark.parametrize("num_rows", [1, 5, 33])
@pytest.mark.parametrize("with_gelu", [False, True])
def test_norm_linear_and_gelu_equal_torch(
    device: torch.device, dtype: torch.dtype, num_rows: int, with_gelu: bool
) -> None:
    from engine.cuda.kernels.linear import Tiling, fold_norm, row_linear

    torch.manual_seed(1)
    K, N = 256, 80
    x = (torch.randn(num_rows, K) * 2 + 0.5).to(device, dtype)
    weight = (torch.randn(N, K) * K**-0.5).to(device, dtype)
    bias = torch.randn(N).to(device, dtype)
    gain, offset = torch.randn(K).to(device, dtype), torch.randn(K).to(device, dtype)
    expected = F.linear(
        F.layer_norm(x.float(), (K,), gain.float(), offset.float()), weight.float(), bias.float()
    )
    expected = F.gelu(expected) if with_gelu else expected
    folded = fold_norm(gain, offset, weight, bias)
    result = row_linear(
        x,
        folded.weight,
        folded.bias,
        Tiling(32, 16, 128, 2, 4),
        column_sums=folded.column_sums,
        with_gelu=with_gelu,
    )
    assert result.dtype == dtype
    torch.testing.assert_close(result.float(), expected, rtol=2e-2, atol=3e-2)


def test_sum_with_the_residual_is_rounded_once(device: torch.device, dtype: torch.dtype) -> None:
    from engine.cuda.kernels.linear import Tiling, row_linear

    torch.manual_seed(2)
    x, residual = (torch.randn(7, 128).to(device, dtype) for _ in range(2))
    weight = (torch.randn(128, 128) * 0.1).to(device, dtype)
    bias = torch.randn(128).to(device)
    result = row_linear(x, weight, bias, Tiling(16, 32, 128, 2, 4), residual=residual)
    expected = residual.float() + F.linear(x.float(), weight.float(), bias)
    torch.testing.assert_close(result, expected.to(dtype), rtol=1e-2, atol=1e-2)


def test_a_row_has_the_same_bits_in_any_batch(device: torch.device, dtype: torch.dtype) -> None:
    from engine.cuda.kernels.linear import Tiling, fold_norm, row_linear

    torch.manual_seed(3)
    x = torch.randn(70, 256).to(device, dtype)
    ones, zeros = torch.ones(256).to(device), torch.zeros(256).to(device)
    folded = fold_norm(ones, zeros, torch.randn(48, 256).to(device, dtype), None)

    def run(rows: torch.Tensor) -> torch.Tensor:
        return row_linear(
            rows,
            folded.weight,
            folded.bias,
            Tiling(32, 16, 128, 2, 4),
            column_sums=folded.column_sums,
            out_dtype=torch.float32,
        )

    whole = run(x)
    for row in (0, 31, 32, 69):
        assert torch.equal(run(x[row : row + 1]), whole[row : row + 1])
    assert torch.equal(run(x[10:53]), whole[10:53])
