"""The encoder's layers in 8 bits against the plain ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from engine.model.layers import Layers, Pair, PlainLayers
from engine.model.linear import DenseLinear

pytestmark = pytest.mark.cuda

Stack = list[Callable[..., torch.Tensor]]


def test_layers_in_8_bits_are_near_the_plain_ones_twice_over(device: torch.device) -> None:
    """Twice, for what a layer leaves to the next must be gone when a stack begins again."""
    from engine.cuda.fp8 import Fp8Layers

    if device.type != "cuda" or torch.cuda.get_device_capability() < (8, 9):
        pytest.skip("needs a GPU of compute capability 8.9")
    torch.manual_seed(1)
    C, F = 256, 1024

    def pair(out: int, inner: int) -> Pair:
        return Pair(
            (torch.randn(out, inner) * inner**-0.5).to(device, torch.bfloat16),
            torch.randn(out).to(device, torch.bfloat16),
        )

    norms = [pair(C, 1) for _ in range(5)]
    norms = [Pair(norm.weight[:, 0].contiguous(), norm.bias) for norm in norms]
    linears = [pair(3 * C, C), pair(C, C), pair(F, C), pair(C, F)] * 2

    def make(layers: Layers, to: torch.dtype) -> Stack:
        n = [Pair(p.weight.to(to), p.bias.to(to)) for p in norms]
        w = [Pair(p.weight.to(to), p.bias.to(to)) for p in linears]
        stack: Stack = []
        for at in (0, 1):
            stack += [
                layers.project(n[2 * at], w[4 * at]),
                layers.add(w[4 * at + 1]),
                layers.project(n[2 * at + 1], w[4 * at + 2], with_gelu=True),
                layers.add(w[4 * at + 3]),
            ]
        return [*stack, layers.norm(n[4])]

    def run(stack: Stack, x: torch.Tensor) -> torch.Tensor:
        for at in (0, 4):
            qkv, out, up, down = stack[at : at + 4]
            x = out(x, qkv(x)[:, :C].contiguous())
            x = down(x, up(x))
        return stack[8](x)

    ours, plain = make(Fp8Layers(), torch.bfloat16), make(PlainLayers(DenseLinear), torch.float32)
    x0 = torch.randn(144, C).to(device, torch.bfloat16)
    first = run(ours, x0.clone())
    expected = run(plain, x0.float())
    error = (first.float() - expected).norm() / expected.norm()
    assert error < 0.06, float(error)
    assert torch.equal(run(ours, x0.clone()), first)
