from __future__ import annotations

import random

import pytest

from engine.batching.page_pool import PagePool


def test_positions_are_rounded_up_to_pages() -> None:
    pool = PagePool(num_pages=10, page_size=50)
    assert [pool.count_pages(n) for n in (1, 50, 51, 100)] == [1, 1, 2, 2]


def test_pages_come_in_one_run_lowest_first() -> None:
    pool = PagePool(num_pages=10, page_size=4)
    assert pool.allocate(9) == (0, 1, 2)
    assert pool.allocate(1) == (3,)
    pool.free((0, 1, 2))
    assert pool.allocate(8) == (0, 1)
    assert pool.allocate(8) == (4, 5)


def test_scattered_pages_are_given_where_no_run_is_left() -> None:
    pool = PagePool(num_pages=6, page_size=1)
    held = [pool.allocate(1) for _ in range(6)]
    for pages in held[::2]:
        assert pages is not None
        pool.free(pages)
    assert pool.allocate(3) == (0, 2, 4)
    assert pool.num_free == 0


def test_nothing_is_given_when_there_is_too_little() -> None:
    pool = PagePool(num_pages=3, page_size=10)
    assert pool.allocate(31) is None
    assert pool.num_free == 3


def test_a_page_freed_twice_is_our_bug() -> None:
    pool = PagePool(num_pages=3, page_size=10)
    pages = pool.allocate(10)
    assert pages is not None
    pool.free(pages)
    with pytest.raises(AssertionError, match="twice"):
        pool.free(pages)


def test_no_page_has_two_holders_and_none_is_lost() -> None:
    rng = random.Random(1)
    pool = PagePool(num_pages=40, page_size=8)
    held: list[tuple[int, ...]] = []
    for _ in range(2000):
        if held and rng.random() < 0.5:
            pool.free(held.pop(rng.randrange(len(held))))
        else:
            pages = pool.allocate(rng.randint(1, 80))
            if pages is not None:
                held.append(pages)
        taken = [page for pages in held for page in pages]
        assert len(set(taken)) == len(taken)
        assert pool.num_free == 40 - len(taken)
