from __future__ import annotations

from benchmarks.support.random_model import make_config
from engine.cuda.memory import RESERVED_BYTES, plan_memory

TURBO = make_config("large-v3-turbo")
PAGES = (16, 50)


def test_a_large_gpu_runs_as_many_sequences_as_asked_for() -> None:
    memory = plan_memory(130_000_000_000, TURBO, 2, 256, PAGES)
    assert memory is not None and memory.max_batch == 256
    assert memory.num_self_pages == 256 * 28
    assert memory.num_cross_pages == 256 * 30 * 3 // 4
    assert 7e9 < memory.kv_bytes < 9e9


def test_a_small_gpu_runs_fewer_within_its_memory() -> None:
    free = 6_000_000_000
    memory = plan_memory(free, make_config("large-v3"), 2, 256, PAGES)
    assert memory is not None and 1 <= memory.max_batch < 20
    assert memory.kv_bytes <= free - RESERVED_BYTES


def test_what_is_planned_always_holds_a_window_of_30_s() -> None:
    for free in range(1_000_000_000, 4_000_000_000, 50_000_000):
        memory = plan_memory(free, make_config("large-v3"), 2, 64, PAGES)
        if memory is not None:
            assert memory.num_cross_pages >= 30 and memory.num_self_pages >= 28
            assert memory.kv_bytes <= free - RESERVED_BYTES


def test_too_little_memory_is_told_apart() -> None:
    assert plan_memory(RESERVED_BYTES, TURBO, 2, 256, PAGES) is None
    assert plan_memory(0, TURBO, 2, 256, PAGES) is None
