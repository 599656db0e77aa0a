"""Budgets refill, failed attempts wait, and capacity follows the delay of finals."""

from __future__ import annotations

from streamer.access.limits import MAX_ADDRESSES, Attempts, Bucket, Capacity


def test_a_bucket_may_be_overdrawn_and_is_waited_off() -> None:
    bucket = Bucket(rate=2.0, size=10.0, now=0.0)
    assert bucket.take(10.0, 0.0) == 0.0
    assert bucket.take(4.0, 0.0) == 2.0
    assert bucket.wait_s(1.0) == 1.0
    assert bucket.wait_s(2.0) == 0.0


def test_a_bucket_holds_no_more_than_its_size() -> None:
    bucket = Bucket(rate=1.0, size=5.0, now=0.0)
    assert bucket.level(1000.0) == 5.0


def test_a_clock_that_goes_back_gives_nothing() -> None:
    bucket = Bucket(rate=1.0, size=5.0, now=100.0)
    bucket.take(5.0, 100.0)
    assert bucket.level(50.0) == 0.0


def test_an_address_waits_after_too_many_failures_and_others_do_not() -> None:
    attempts = Attempts(max_per_minute=3)
    for _ in range(4):
        assert attempts.wait_s("a", 0.0) == 0.0
        attempts.fail("a", 0.0)
    assert attempts.wait_s("a", 0.0) > 0.0
    assert attempts.wait_s("b", 0.0) == 0.0
    assert attempts.wait_s("a", 60.0) == 0.0


def test_addresses_are_forgotten_rather_than_kept_without_bound() -> None:
    attempts = Attempts(max_per_minute=1)
    for number in range(MAX_ADDRESSES + 10):
        attempts.fail(f"address {number}", 0.0)
    attempts.fail("address 0", 0.0)
    assert attempts.wait_s("address 0", 0.0) == 0.0
    assert len(attempts._buckets) == MAX_ADDRESSES


def late(capacity: Capacity, delay_s: float, sessions: int, at: float, count: int = 5) -> None:
    for _ in range(count):
        capacity.record(delay_s, sessions, at)


def test_capacity_falls_to_what_is_open_when_finals_are_late() -> None:
    capacity = Capacity(ceiling=64, target_s=1.0, now=0.0)
    assert capacity.limit == 64
    late(capacity, 2.0, 20, at=6.0)
    assert capacity.limit == 18
    late(capacity, 2.0, 18, at=7.0)
    assert capacity.limit == 18  # the step before has had no time to show
    late(capacity, 2.0, 18, at=12.0)
    assert capacity.limit == 16


def test_capacity_rises_only_where_every_place_is_taken() -> None:
    capacity = Capacity(ceiling=64, target_s=1.0, now=0.0)
    capacity.calibrate(8.0)
    late(capacity, 0.1, 5, at=6.0)
    assert capacity.limit == 8
    late(capacity, 0.1, 8, at=12.0)
    assert capacity.limit == 9


def test_finals_that_are_neither_late_nor_early_change_nothing() -> None:
    capacity = Capacity(ceiling=64, target_s=1.0, now=0.0)
    capacity.calibrate(8.0)
    late(capacity, 0.8, 8, at=6.0)
    assert capacity.limit == 8


def test_capacity_stays_between_the_least_and_the_ceiling() -> None:
    capacity = Capacity(ceiling=3, target_s=1.0, now=0.0)
    capacity.calibrate(100.0)
    assert capacity.limit == 3
    for step in range(10):
        late(capacity, 9.0, 1, at=10.0 * (step + 1))
    assert capacity.limit == Capacity.MIN_SESSIONS == 2
    assert Capacity(ceiling=1, target_s=1.0, now=0.0).limit == 1


def test_old_finals_say_nothing() -> None:
    capacity = Capacity(ceiling=64, target_s=1.0, now=0.0)
    late(capacity, 5.0, 20, at=1.0)
    assert capacity.delay_s(1.0) == 5.0
    assert capacity.delay_s(100.0) is None
