"""A GPU's layers against the plain ones."""

from __future__ import annotations

import pytest
import torch

from engine.model.layers import Layers, Pair, PlainLayers
from engine.model.linear import DenseLinear

pytestmark = pytest.mark.cuda


def test_a_stack_equals_the_plain_layers(device: torch.device, dtype: torch.dtype) -> None:
    from engine.cuda.layers import CudaLayers

    torch.manual_seed(1)
    C, F, V = 128, 512, 300

    def pair(out: int, inner: int) -> Pair:
        return Pair(
            (torch.randn(out, inner) * inner**-0.5).to(device, dtype),
            torch.randn(out).to(device, dtype),
        )

    norms = [Pair(torch.randn(C).to(device, dtype), torch.randn(C).to(device, dtype))] * 3
    linears = [pair(3 * C, C), pair(C, C), pair(F, C), pair(C, F), pair(2 * C, C)]
    vocabulary = torch.randn(V, C).to(device, dtype)
    x0 = torch.randn(37, C).to(device, dtype)

    def run(layers: Layers, x: torch.Tensor, to: torch.dtype) -> list[torch.Tensor]:
        def cast(p: Pair) -> Pair:
            return Pair(p.weight.to(to), p.bias.to(to))

        n = [cast(p) for p in norms]
        w = [cast(p) for p in linears]
        qkv, out = layers.project(n[0], w[0]), layers.add(w[1])
        up, down = layers.project(n[1], w[2], with_gelu=True), layers.add(w[3])
        end, cross = layers.norm(n[2]), layers.linear(w[4])
        x = x.to(to)
        attended = qkv(x)
        x = out(x, attended[:, :C].contiguous())
        x = down(x, up(x))
        x = end(x)
        return [attended, x, cross(x), layers.logits(vocabulary.to(to))(x)]

    expected = run(PlainLayers(DenseLinear), x0.clone(), torch.float32)
    for result, reference in zip(run(CudaLayers(8), x0.clone(), dtype), expected, strict=True):
        error = (result.float() - reference).norm() / reference.norm()
        assert error < 0.02, float(error)
