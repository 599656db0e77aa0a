from __future__ import annotations

import pytest
import torch

from engine.model import precision
from engine.model.linear import DenseLinear, Int8Linear
from engine.model.precision import choose_precision

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize(("has_int8", "name"), [(True, "int8"), (False, "float32")])
def test_a_cpu_takes_8_bits_where_it_multiplies_them_fast(
    monkeypatch: pytest.MonkeyPatch, has_int8: bool, name: str
) -> None:
    monkeypatch.setattr(precision, "has_int8", lambda: has_int8)
    assert choose_precision("auto", CPU).name == name


def test_a_gpu_takes_bfloat16() -> None:
    assert choose_precision("auto", GPU).dtype is torch.bfloat16


def test_8_bits_are_of_the_products_alone() -> None:
    chosen = choose_precision("int8", CPU)
    assert (chosen.dtype, chosen.make_linear) == (torch.float32, Int8Linear)
    chosen = choose_precision("fp8", GPU)
    assert (chosen.dtype, chosen.make_linear) == (torch.bfloat16, DenseLinear)
    assert choose_precision("float16", GPU).dtype is torch.float16


@pytest.mark.parametrize(("name", "device"), [("int8", GPU), ("fp8", CPU)])
def test_a_precision_of_the_other_device_is_refused(name: str, device: torch.device) -> None:
    with pytest.raises(ValueError, match=f"{name} is for .*, got device {device.type}"):
        choose_precision(name, device)
