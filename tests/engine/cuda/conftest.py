"""Kernels run on the GPU, or, where TRITON_INTERPRET=1 is set and Triton installed, slowly here."""

from __future__ import annotations

import os

import pytest
import torch


@pytest.fixture(scope="session")
def device() -> torch.device:
    pytest.importorskip("triton", reason="Triton is not installed")
    if torch.cuda.is_available():
        return torch.device("cuda")
    if os.environ.get("TRITON_INTERPRET") == "1":
        return torch.device("cpu")
    pytest.skip("no GPU, and TRITON_INTERPRET=1 is not set")


@pytest.fixture(scope="session")
def dtype(device: torch.device) -> torch.dtype:
    # Triton's interpreter multiplies no bfloat16
    return torch.bfloat16 if device.type == "cuda" else torch.float16
