from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.protocols.twilio.jitter import MAX_GAP_S, MAX_WAITING_CHUNKS, ChunkOrder

SILENCE = b"\xff"


def order() -> ChunkOrder:
    return ChunkOrder(bytes_per_ms=8, silence=0xFF)


def chunk(number: int, size: int = 160) -> bytes:
    return bytes([number % 200]) * size


def test_chunks_in_order_pass_at_once() -> None:
    track = order()
    for number in range(1, 50):
        assert track.put(number, (number - 1) * 20, chunk(number)) == chunk(number)
    assert track.flush() == b""
    assert (track.num_lost, track.num_late) == (0, 0)


def test_an_early_chunk_waits_for_the_one_before_it() -> None:
    track = order()
    assert track.put(2, None, chunk(2)) == b""
    assert track.put(3, None, chunk(3)) == b""
    assert track.put(1, None, chunk(1)) == chunk(1) + chunk(2) + chunk(3)


def test_a_lost_chunk_becomes_silence_of_its_length() -> None:
    track = order()
    assert track.put(1, 0, chunk(1)) == chunk(1)
    out = b"".join(track.put(n, (n - 1) * 20, chunk(n)) for n in range(4, 4 + MAX_WAITING_CHUNKS))
    assert out == b"", "the wait is not over"
    number = 4 + MAX_WAITING_CHUNKS
    out = track.put(number, (number - 1) * 20, chunk(number))
    assert out == SILENCE * 320 + b"".join(chunk(n) for n in range(4, number + 1))
    assert track.num_lost == 2


def test_what_comes_after_it_was_given_up_or_twice_is_dropped() -> None:
    track = order()
    assert track.put(1, None, chunk(1)) == chunk(1)
    assert track.put(1, None, chunk(1)) == b""
    assert track.put(3, None, chunk(3)) == b""
    assert track.put(3, None, chunk(3)) == b""
    assert track.flush() == SILENCE * 160 + chunk(3)
    assert track.put(2, None, chunk(2)) == b""
    assert (track.num_lost, track.num_late) == (1, 3)


def test_a_track_that_starts_later_is_moved_to_its_time() -> None:
    track = order()
    assert track.put(1, 5000, chunk(1)) == SILENCE * 40_000 + chunk(1)
    assert track.put(2, 5020, chunk(2)) == chunk(2)
    assert track.num_lost == 0


def test_a_track_that_pauses_without_skipping_numbers_keeps_its_time() -> None:
    track = order()
    track.put(1, 0, chunk(1))
    assert track.put(2, 3000, chunk(2)) == SILENCE * (3000 * 8 - 160) + chunk(2)


def test_jitter_of_the_timestamps_is_no_pause() -> None:
    track = order()
    for number in range(1, 100):
        jitter = random.Random(number).randint(-15, 40)
        timestamp = max(0, (number - 1) * 20 + jitter)
        assert track.put(number, timestamp, chunk(number)) == chunk(number)


def test_joining_late_goes_by_the_time_and_not_by_the_number() -> None:
    track = order()
    out = b"".join(track.put(n, (n - 500) * 20, chunk(n)) for n in range(500, 520))
    out += track.flush()
    assert out == b"".join(chunk(n) for n in range(500, 520))
    assert track.num_lost == 0


@pytest.mark.parametrize("timestamp", [None, 10**13])
def test_absurd_numbers_do_not_make_hours_of_silence(timestamp: int | None) -> None:
    track = order()
    track.put(1, None if timestamp is None else 0, chunk(1))
    out = track.put(10**15, timestamp, chunk(2)) + track.flush()
    assert out == chunk(2)
    assert len(out) < MAX_GAP_S * 8000


def test_numbers_may_count_from_zero_or_be_missing() -> None:
    track = order()
    assert track.put(0, None, chunk(1)) == chunk(1)
    assert track.put(1, None, chunk(2)) == chunk(2)
    bare = order()
    assert bare.put(None, None, chunk(1)) == chunk(1)
    assert bare.put(None, None, chunk(2)) == chunk(2)


@given(st.randoms(use_true_random=False), st.integers(2, 60))
def test_any_order_within_the_wait_gives_the_same_sound(rng: random.Random, count: int) -> None:
    # each chunk is moved by less than the wait
    moved = sorted(range(1, count + 1), key=lambda n: n + rng.uniform(0, MAX_WAITING_CHUNKS - 1))
    track = order()
    out = b"".join(track.put(n, (n - 1) * 20, chunk(n)) for n in moved) + track.flush()
    assert out == b"".join(chunk(n) for n in range(1, count + 1))
    assert track.num_lost == 0


@given(st.sets(st.integers(1, 60)), st.integers(60, 80))
def test_losses_never_change_the_length(lost: set[int], count: int) -> None:
    track = order()
    kept = [n for n in range(1, count + 1) if n not in lost or n == count]
    out = b"".join(track.put(n, (n - 1) * 20, chunk(n)) for n in kept) + track.flush()
    # the timestamps' tolerance is the most that a position can be off
    assert abs(len(out) - count * 160) <= 800
    assert out.endswith(chunk(count))
