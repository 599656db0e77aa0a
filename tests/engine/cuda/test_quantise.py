"""Rows in 8 bits against those they were made of."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

pytestmark = pytest.mark.cuda


@pytest.fixture(autouse=True)
def needs_fp8(device: torch.device) -> None:
    if device.type != "cuda" or torch.cuda.get_device_capability() < (8, 9):
        pytest.skip("needs a GPU of compute capability 8.9")


@pytest.mark.parametrize("C", [384, 512, 1280])
def test_a_norm_in_8_bits_is_the_norm(C: int) -> None:
    from engine.cuda.kernels.quantise import quantise_norm

    torch.manual_seed(5)
    x = torch.randn(70, C, device="cuda").bfloat16() * 3
    shift, gain, offset = (torch.randn(C, device="cuda") for _ in range(3))
    rows, scales = quantise_norm(x, shift, gain, offset)
    expected = F.layer_norm(x.float() + shift, (C,), gain, offset)
    error = (rows.float() * scales - expected).norm() / expected.norm()
    assert error < 0.03, float(error)
    assert rows.float().abs().amax(dim=1).eq(448).all()


def test_what_is_owed_to_the_stream_is_added_before_its_norm() -> None:
    from engine.cuda.kernels.quantise import quantise_norm

    torch.manual_seed(7)
    x, addend = (torch.randn(70, 1280, device="cuda").bfloat16() for _ in range(2))
    shift, gain, offset = (torch.randn(1280, device="cuda") for _ in range(3))
    sum = x + addend
    expected = quantise_norm(sum, shift, gain, offset)
    result = quantise_norm(x, shift, gain, offset, addend)
    assert torch.equal(x, sum)
    assert torch.equal(result[0].view(torch.uint8), expected[0].view(torch.uint8))
    assert torch.equal(result[1], expected[1])


@pytest.mark.parametrize("C", [1536, 2048, 5120])
def test_a_gelu_in_8_bits_is_the_gelu(C: int) -> None:
    from engine.cuda.kernels.quantise import quantise_gelu

    torch.manual_seed(6)
    x = torch.randn(70, C, device="cuda").bfloat16()
    x[3] = -x[3].abs()  # nothing of it is large
    rows, scales = quantise_gelu(x)
    expected = F.gelu(x.float())
    error = (rows.float() * scales - expected).norm(dim=1) / expected.norm(dim=1)
    assert error.max() < 0.04, error.tolist()
