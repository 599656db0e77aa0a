from __future__ import annotations

import pytest
import torch

from engine.model.linear import DenseLinear, Int8Linear, has_int8

needs_int8 = pytest.mark.skipif(not has_int8(), reason="this processor has no VNNI")


def make(bias: bool = True) -> tuple[torch.Tensor, torch.Tensor | None]:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(96, 64, generator=generator) / 8
    return weight, torch.randn(96, generator=generator) if bias else None


@needs_int8
@pytest.mark.parametrize("bias", [True, False])
def test_8_bits_come_close_to_floats(bias: bool) -> None:
    weight, b = make(bias)
    x = torch.randn(40, 64, generator=torch.Generator().manual_seed(1))
    exact, rounded = DenseLinear(weight, b)(x), Int8Linear(weight, b)(x)
    assert (exact - rounded).norm() / exact.norm() < 0.015


@needs_int8
def test_a_row_does_not_depend_on_its_neighbours_at_all() -> None:
    linear = Int8Linear(*make())
    x = torch.randn(50, 64, generator=torch.Generator().manual_seed(1))
    x[3] *= 1000
    together = linear(x)
    for row in (0, 3, 49):
        assert torch.equal(together[row], linear(x[row : row + 1])[0])


@needs_int8
def test_a_row_of_zeros_gives_the_bias() -> None:
    weight, bias = make()
    assert bias is not None
    torch.testing.assert_close(Int8Linear(weight, bias)(torch.zeros(1, 64))[0], bias)


@needs_int8
def test_the_quantisation_backend_of_others_is_left_alone() -> None:
    before = torch.backends.quantized.engine
    Int8Linear(*make())
    assert torch.backends.quantized.engine == before
