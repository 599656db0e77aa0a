"""Check that a GPU can run the engine, and explain it if not."""

from __future__ import annotations

import importlib.util
import logging
import os

import torch

from engine.checkpoint.model_config import ModelConfig
from engine.cuda.memory import Memory, plan_memory

logger = logging.getLogger(__name__)

MIN_CAPABILITY = (8, 0)  # Ampere: the first with bfloat16
FP8_CAPABILITY = (8, 9)  # Ada: the first that multiplies 8-bit floating point


class DeviceError(ValueError):
    """The GPU cannot run the engine; the message says why and what to do."""


def check_device(device: torch.device) -> bool:
    """Check the GPU, and return whether its fast kernels can be used.

    Returns:
        False where Triton is missing: the reference attention runs, slowly.

    Raises:
        DeviceError: there is no GPU, or it is too old.
    """
    if not torch.cuda.is_available():
        raise DeviceError(
            "device: expected an NVIDIA GPU with a working driver, found none; "
            "choose device cpu, or install torch for CUDA and check nvidia-smi"
        )
    capability = torch.cuda.get_device_capability(device)
    if capability < MIN_CAPABILITY:
        name = torch.cuda.get_device_name(device)
        raise DeviceError(
            f"device: expected compute capability {MIN_CAPABILITY[0]}.{MIN_CAPABILITY[1]} or "
            f"higher (Ampere, for bfloat16), got {capability[0]}.{capability[1]} ({name})"
        )
    if importlib.util.find_spec("triton") is None:
        logger.warning(
            "Triton is not installed: attention falls back to PyTorch's, without CUDA graphs; "
            "expect a tenth of the speed"
        )
        return False
    return True


def check_fp8(device: torch.device) -> None:
    """Check that the GPU multiplies in 8-bit floating point.

    Raises:
        DeviceError: it does not.
    """
    capability = torch.cuda.get_device_capability(device)
    if capability < FP8_CAPABILITY:
        raise DeviceError(
            f"dtype: fp8 needs compute capability {FP8_CAPABILITY[0]}.{FP8_CAPABILITY[1]} or "
            f"higher, got {capability[0]}.{capability[1]}; choose bfloat16"
        )


def round_alike() -> None:
    """Make cuBLAS batch-invariant: one order of summation for any number of rows.

    Call this before its first product.

    Without workspace it cannot split sums among processors. It costs 1 us of 10 in one of six
    products of a decoder layer, and nothing in the encoder (docs/performance.md).
    """
    os.environ.setdefault("CUBLASLT_WORKSPACE_SIZE", "0")
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":0:0")


def measure_memory(
    model: ModelConfig, itemsize: int, max_batch: int, page_sizes: tuple[int, int]
) -> Memory:
    """Size the pools from the memory that is free now, after the weights are loaded.

    Raises:
        DeviceError: not even one window fits.
    """
    free_bytes, total_bytes = torch.cuda.mem_get_info()
    memory = plan_memory(free_bytes, model, itemsize, max_batch, page_sizes)
    if memory is None:
        raise DeviceError(
            f"out of GPU memory: {free_bytes / 1e9:.1f} of {total_bytes / 1e9:.1f} GB are free "
            "beside the weights, too few for one window of 30 s; "
            "choose a smaller model, or end other programs that use the GPU"
        )
    if memory.max_batch < max_batch:
        logger.warning(
            "GPU memory is enough for %d sequences at once, not %d; "
            "a smaller max_batch or model leaves room",
            memory.max_batch,
            max_batch,
        )
    return memory


def explain_out_of_memory(max_batch: int, max_encode_batch: int) -> DeviceError:
    """Return the error for a GPU whose memory ran out while graphs were captured."""
    return DeviceError(
        f"out of GPU memory while starting; lower max_batch (now {max_batch}) or "
        f"max_encode_batch (now {max_encode_batch}), choose a smaller model, or end other "
        "programs that use the GPU"
    )
