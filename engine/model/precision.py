"""Numeric precision of a model on each device."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.model.layers import LinearMaker
from engine.model.linear import DenseLinear, Int8Linear, has_int8


@dataclass(frozen=True, slots=True)
class Precision:
    """How a model is computed."""

    name: str
    dtype: torch.dtype  # of activations, K/V and all weights but those of linear layers
    make_linear: LinearMaker


def choose_precision(name: str, device: torch.device) -> Precision:
    """Choose the fastest precision that keeps the text, or the one asked for.

    Raises:
        ValueError: the device does not compute in it.
    """
    if name == "auto":
        if device.type == "cuda":
            name = "bfloat16"
        else:
            name = "int8" if has_int8() else "float32"
    if name == "int8":
        if device.type != "cpu":
            raise ValueError(f"dtype: int8 is for the CPU, got device {device.type}")
        return Precision(name, torch.float32, Int8Linear)
    if name == "fp8":
        if device.type != "cuda":
            raise ValueError(f"dtype: fp8 is for a GPU, got device {device.type}")
        return Precision(name, torch.bfloat16, DenseLinear)
    return Precision(name, getattr(torch, name), DenseLinear)
