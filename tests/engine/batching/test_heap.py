"""Freed memory goes back to the system."""

from __future__ import annotations

import sys

import psutil
import pytest

from engine.batching.heap import release_heap


@pytest.mark.skipif(sys.platform != "linux", reason="needs glibc's malloc_trim")
def test_holes_in_the_heap_are_given_back() -> None:
    process = psutil.Process()
    blocks = [bytearray(60_000) for _ in range(2_000)]  # small enough for the heap, 120 MB
    del blocks[:-1]  # the last one keeps the heap's top from shrinking
    before = process.memory_info().rss
    release_heap()
    assert before - process.memory_info().rss > 50_000_000
    assert len(blocks) == 1
