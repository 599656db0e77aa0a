"""What a configuration means for the pools, on each kind of device."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from engine.batching.counters import Counters
from engine.build import (
    CROSS_PAGE_SIZE,
    SELF_PAGE_SIZE,
    build_cuda_components,
    configure_pages,
    read_spec,
    size_pools,
)
from engine.config import EngineConfig

pytestmark = pytest.mark.model


def test_pools_have_room_for_as_many_whole_windows_as_run_at_once(base: Any) -> None:
    self_pool, cross_pool = size_pools(EngineConfig(), base.config, 4, 3)
    assert self_pool.num_pages * SELF_PAGE_SIZE == 3 * 448
    assert cross_pool.num_pages * CROSS_PAGE_SIZE == 3 * 1500


def test_the_configuration_may_say_how_large_the_pools_are(base: Any) -> None:
    config = EngineConfig(self_kv_bytes=10**8, cross_kv_bytes=2 * 10**8)
    num_self, num_cross = configure_pages(config, base.config, 4, 1, 1)
    self_page = SELF_PAGE_SIZE * base.config.self_kv_bytes_per_token(4)
    cross_page = CROSS_PAGE_SIZE * base.config.cross_kv_bytes_per_position(4)
    assert (num_self, num_cross) == (10**8 // self_page, 2 * 10**8 // cross_page)


@pytest.mark.parametrize("name", ["self_kv_bytes", "cross_kv_bytes"])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_pool_that_holds_no_whole_window_is_refused_on_each_device(
    base: Any, name: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = EngineConfig(model="base", device="cpu", **{name: 100_000})
    with pytest.raises(ValueError, match=f"{name}: expected at least [0-9]+, got"):
        if device == "cpu":
            size_pools(config, base.config, 4, 8)
        else:
            _build_on_a_gpu(config, monkeypatch)


def _build_on_a_gpu(config: EngineConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Build as on a GPU, as far as that goes without one."""
    memory = SimpleNamespace(max_batch=256, num_self_pages=7168, num_cross_pages=7680)
    build = SimpleNamespace(
        Limits=SimpleNamespace,
        PoolSizes=SimpleNamespace,
        build_model=lambda *_, **__: None,
        build_runner=lambda *_: pytest.fail("built with a pool that holds no window"),
    )
    startup = SimpleNamespace(
        check_fp8=None,
        explain_out_of_memory=None,
        measure_memory=lambda *_: memory,
        round_alike=lambda: None,
    )
    monkeypatch.setitem(sys.modules, "engine.cuda.build", build)  # type: ignore[misc]
    monkeypatch.setitem(sys.modules, "engine.cuda.startup", startup)  # type: ignore[misc]
    monkeypatch.setattr("engine.build.load_weights", lambda *_: None)
    build_cuda_components(read_spec(config), Counters())
