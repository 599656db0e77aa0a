from __future__ import annotations

import logging

import pytest
import torch

from benchmarks.support.random_model import make_config
from engine.cuda import startup
from engine.cuda.startup import DeviceError, check_device, check_fp8, measure_memory

DEVICE = torch.device("cuda")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Pretend that there is a GPU; the tests say which."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Some GPU")
    return monkeypatch


def test_no_gpu_is_told_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(DeviceError, match=r"found none; choose device cpu"):
        check_device(DEVICE)


def test_a_gpu_without_bfloat16_is_refused(gpu: pytest.MonkeyPatch) -> None:
    gpu.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    with pytest.raises(DeviceError, match=r"8\.0 or higher .* got 7\.5 \(Some GPU\)"):
        check_device(DEVICE)


def test_without_triton_the_reference_runs_with_a_warning(
    gpu: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gpu.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    gpu.setattr(startup.importlib.util, "find_spec", lambda name: None)
    with caplog.at_level(logging.WARNING):
        assert not check_device(DEVICE)
    assert "Triton is not installed" in caplog.text


def test_fp8_needs_a_gpu_that_multiplies_it(gpu: pytest.MonkeyPatch) -> None:
    gpu.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    with pytest.raises(DeviceError, match="fp8 needs compute capability 8.9"):
        check_fp8(DEVICE)


def test_a_full_gpu_says_how_much_is_free(gpu: pytest.MonkeyPatch) -> None:
    gpu.setattr(torch.cuda, "mem_get_info", lambda: (1_500_000_000, 24_000_000_000))
    with pytest.raises(DeviceError, match=r"1\.5 of 24\.0 GB are free .* smaller model"):
        measure_memory(make_config("large-v3"), 2, 256, (16, 50))


def test_less_room_than_asked_for_is_a_warning(
    gpu: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gpu.setattr(torch.cuda, "mem_get_info", lambda: (8_000_000_000, 24_000_000_000))
    with caplog.at_level(logging.WARNING):
        memory = measure_memory(make_config("large-v3"), 2, 256, (16, 50))
    assert 1 <= memory.max_batch < 256
    assert "enough for" in caplog.text
