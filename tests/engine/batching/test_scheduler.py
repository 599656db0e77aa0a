from __future__ import annotations

import random

import pytest

from engine.api import EngineBusy
from engine.batching.page_pool import PagePool
from engine.batching.scheduler import ADMIT_NONE, Admission, Encode, Scheduler, Step
from engine.batching.sequence import Phase, Sequence
from engine.model.folded_tail import KeptPositions
from tests.support.sequences import make_sequence


class Setup:
    def __init__(
        self, *, self_pages: int = 100, cross_pages: int = 100, max_encode_batch: int = 4
    ) -> None:
        self.self_pool = PagePool(self_pages, 16)
        self.cross_pool = PagePool(cross_pages, 50)
        self.scheduler = Scheduler(
            self.self_pool,
            self.cross_pool,
            max_batch=8,
            max_encode_batch=max_encode_batch,
            max_encode_positions=1500,
            max_waiting=10,
        )

    @property
    def is_empty(self) -> bool:
        return (
            self.self_pool.num_free == self.self_pool.num_pages
            and self.cross_pool.num_free == self.cross_pool.num_pages
        )


def encoded(work: Encode | Step | None) -> list[int]:
    assert isinstance(work, Encode)
    return [sequence.id for sequence in work.sequences]


def stepped(work: Encode | Step | None) -> list[int]:
    assert isinstance(work, Step)
    return [sequence.id for sequence in work.sequences]


def test_nothing_to_do_is_none() -> None:
    assert Setup().scheduler.next() is None


def test_what_waits_is_encoded_together_then_decoded_together() -> None:
    scheduler = Setup().scheduler
    for id in range(3):
        scheduler.add(make_sequence(id))
    assert encoded(scheduler.next()) == [0, 1, 2]
    assert stepped(scheduler.next()) == [0, 1, 2]


def test_finals_go_first_then_deadlines_then_arrival() -> None:
    scheduler = Setup(max_encode_batch=8).scheduler
    scheduler.add(make_sequence(0))
    scheduler.add(make_sequence(1, deadline=9.0))
    scheduler.add(make_sequence(2, deadline=5.0))
    scheduler.add(make_sequence(3, is_final=True))
    scheduler.add(make_sequence(4, is_final=True, deadline=1.0))
    assert encoded(scheduler.next()) == [4, 3, 2, 1, 0]


def test_an_encode_is_bounded_in_positions() -> None:
    scheduler = Setup().scheduler
    for id in range(3):
        scheduler.add(make_sequence(id, kept=KeptPositions(700)))
    assert encoded(scheduler.next()) == [0, 1]


def test_a_single_window_may_exceed_the_bound() -> None:
    scheduler = Setup().scheduler
    scheduler.add(make_sequence(0, kept=KeptPositions(2000)))
    assert encoded(scheduler.next()) == [0]


def test_a_newer_window_replaces_the_older_one_of_its_stream() -> None:
    setup = Setup()
    older, newer = make_sequence(0, stream_id=7), make_sequence(1, stream_id=7)
    assert setup.scheduler.add(older) is None
    assert encoded(setup.scheduler.next()) == [0]
    assert setup.scheduler.add(newer) is older
    assert older.phase is Phase.DONE and setup.is_empty
    assert encoded(setup.scheduler.next()) == [1]


def test_too_many_waiting_are_refused_by_type() -> None:
    scheduler = Setup().scheduler
    for id in range(10):
        scheduler.add(make_sequence(id))
    with pytest.raises(EngineBusy):
        scheduler.add(make_sequence(10))
    # but a stream that waits already may bring a newer window
    assert scheduler.add(make_sequence(11, stream_id=3)) is not None


def test_a_window_without_pages_waits_and_is_not_preempted() -> None:
    setup = Setup(cross_pages=30)
    setup.scheduler.add(make_sequence(0, kept=KeptPositions(1000)))
    assert encoded(setup.scheduler.next()) == [0]
    setup.scheduler.add(make_sequence(1, kept=KeptPositions(1500)))
    setup.scheduler.add(make_sequence(2, kept=KeptPositions(50)))
    work = setup.scheduler.next()
    assert stepped(work) == [0] and work is not None
    setup.scheduler.release(work.sequences[0])
    assert encoded(setup.scheduler.next()) == [1]


def test_encoding_does_not_hold_up_what_is_decoded() -> None:
    scheduler = Setup(max_encode_batch=1).scheduler
    for id in range(4):
        scheduler.add(make_sequence(id))
    work = scheduler.next()
    assert encoded(work) == [0] and work is not None
    scheduler.record(work, 0.04)  # nothing waited for the first
    work = scheduler.next()
    assert encoded(work) == [1] and work is not None
    scheduler.record(work, 0.04)
    for _ in range(4):  # 0.04 s of steps for 0.04 s of encoding
        work = scheduler.next()
        assert stepped(work) == [0, 1] and work is not None
        scheduler.record(work, 0.01)
    assert encoded(scheduler.next()) == [2]


def test_a_final_does_not_wait_for_partials_to_decode() -> None:
    scheduler = Setup(max_encode_batch=1).scheduler
    scheduler.add(make_sequence(0))
    scheduler.add(make_sequence(1))
    for _ in range(2):
        work = scheduler.next()
        assert isinstance(work, Encode)
        scheduler.record(work, 1.0)
    scheduler.add(make_sequence(2))
    assert stepped(scheduler.next()) == [0, 1]
    scheduler.add(make_sequence(3, is_final=True))
    assert encoded(scheduler.next()) == [3]


def test_releasing_twice_does_nothing() -> None:
    setup = Setup()
    sequence = make_sequence(0)
    setup.scheduler.add(sequence)
    setup.scheduler.next()
    setup.scheduler.release(sequence)
    setup.scheduler.release(sequence)
    assert setup.is_empty


def test_nothing_leaks_after_a_thousand_random_admissions_and_aborts() -> None:
    rng = random.Random(3)
    setup = Setup(self_pages=20, cross_pages=60)
    alive: list[Sequence] = []
    num_refused = num_replaced = 0
    for id in range(1000):
        sequence = make_sequence(
            id,
            stream_id=rng.randrange(30),
            is_final=rng.random() < 0.3,
            deadline=rng.random(),
            kept=KeptPositions(rng.randint(1, 1500)),
        )
        try:
            replaced = setup.scheduler.add(sequence)
        except EngineBusy:
            num_refused += 1
        else:
            alive.append(sequence)
            if replaced is not None:
                alive.remove(replaced)
                num_replaced += 1
        for _ in range(rng.randrange(3)):
            work = setup.scheduler.next()
            if work is not None:
                setup.scheduler.record(work, rng.random() * 0.1)
        while alive and rng.random() < 0.4:
            setup.scheduler.release(alive.pop(rng.randrange(len(alive))))
        held = [s for s in alive if s.phase is Phase.RUNNING]
        taken = [page for s in held for page in s.cross_pages]
        assert len(set(taken)) == len(taken) == 60 - setup.cross_pool.num_free
    assert num_refused and num_replaced
    for sequence in alive:
        setup.scheduler.release(sequence)
    assert setup.is_empty
    assert setup.scheduler.next() is None


def test_recordings_wait_for_live_windows() -> None:
    scheduler = Setup(max_encode_batch=1).scheduler
    scheduler.add(make_sequence(0, is_final=True, deadline=float("inf")))
    scheduler.add(make_sequence(1, deadline=9.0))
    scheduler.add(make_sequence(2, is_final=True, deadline=9.0))
    assert [encoded(scheduler.next()) for _ in range(3)] == [[2], [1], [0]]


def test_a_recording_does_not_break_into_the_decoding_of_partials() -> None:
    scheduler = Setup(max_encode_batch=1).scheduler
    for number in range(2):
        scheduler.add(make_sequence(number))
        work = scheduler.next()
        assert isinstance(work, Encode)
        scheduler.record(work, 1.0)
    scheduler.add(make_sequence(2, is_final=True, deadline=float("inf")))
    assert stepped(scheduler.next()) == [0, 1]


def test_windows_that_are_not_awaited_have_an_admission_of_their_own() -> None:
    scheduler = Setup(max_encode_batch=1).scheduler
    scheduler.add(make_sequence(0, deadline=float("inf")))
    assert scheduler.next(Admission(background=False)) is None
    assert encoded(scheduler.next(Admission(partials=False))) == [0]
    scheduler.add(make_sequence(1, deadline=float("inf")))
    scheduler.add(make_sequence(2))
    # a partial that waits for the encoder is not overtaken by a recording
    assert stepped(scheduler.next(Admission(partials=False))) == [0]


def test_a_final_may_have_room_where_a_partial_has_none() -> None:
    scheduler = Setup().scheduler
    scheduler.add(make_sequence(0))
    scheduler.add(make_sequence(1, is_final=True))
    assert scheduler.next(ADMIT_NONE) is None
    assert encoded(scheduler.next(Admission(partials=False))) == [1]


def test_what_is_encoded_meanwhile_decodes_afterwards() -> None:
    scheduler = Setup().scheduler
    scheduler.add(make_sequence(0))
    scheduler.add(make_sequence(1))
    work = scheduler.next()
    assert isinstance(work, Encode)
    assert not work.is_background
    scheduler.begin_encoding(work)
    assert scheduler.next() is None
    scheduler.release(work.sequences[0])
    scheduler.end_encoding(work)
    assert stepped(scheduler.next()) == [1]


def test_pages_of_a_window_that_is_being_encoded_are_freed_when_that_has_ended() -> None:
    scheduler = Setup().scheduler
    scheduler.add(make_sequence(0))
    scheduler.add(make_sequence(1))
    work = scheduler.next()
    assert isinstance(work, Encode)
    scheduler.begin_encoding(work)
    num_free = scheduler.num_free_pages
    scheduler.release(work.sequences[0])
    assert work.sequences[0].cross_pages and scheduler.num_free_pages == num_free
    scheduler.end_encoding(work)
    assert not work.sequences[0].cross_pages and scheduler.num_free_pages > num_free
    scheduler.release(work.sequences[1])
    assert scheduler.num_free_pages == scheduler.num_pages


def test_finals_that_were_released_hold_up_no_other_final() -> None:
    scheduler = Setup(max_encode_batch=1).scheduler
    for id in range(3):
        final = make_sequence(id, is_final=True)
        scheduler.add(final)
        work = scheduler.next()
        assert isinstance(work, Encode)
        scheduler.record(work, 1.0)
        scheduler.release(final)
    partial = make_sequence(3)
    scheduler.add(partial)
    work = scheduler.next()
    assert isinstance(work, Encode)
    scheduler.add(make_sequence(4, stream_id=4))
    work = scheduler.next()
    assert isinstance(work, Encode)
    scheduler.record(work, 1.0)  # encoding has had more than its share
    scheduler.add(make_sequence(5))
    assert stepped(scheduler.next()) == [3, 4]
    scheduler.add(make_sequence(6, is_final=True))
    assert encoded(scheduler.next()) == [6]


def test_what_was_short_of_memory_is_halved_for_windows_that_are_not_awaited_too() -> None:
    scheduler = Setup(max_encode_batch=4).scheduler
    scheduler.reduce_batch(Encode(tuple(make_sequence(n) for n in range(4))))
    assert scheduler.max_encode_batch == 2 and scheduler.max_batch == 8
    for number in range(4):
        scheduler.add(make_sequence(number, deadline=float("inf")))
    assert encoded(scheduler.next()) == [0, 1]
    scheduler.reduce_batch(Step(tuple(make_sequence(n) for n in range(1))))
    assert scheduler.max_batch == 1, "one always runs"
    while scheduler.is_reduced:
        scheduler.grow_batch()
    assert (scheduler.max_encode_batch, scheduler.max_batch) == (4, 8)


def test_windows_go_in_the_order_that_sorting_them_all_gives() -> None:
    rng = random.Random(3)
    scheduler = Setup(self_pages=1000, cross_pages=1000, max_encode_batch=1).scheduler
    waiting: list[Sequence] = []
    for id in range(300):
        deadline = rng.choice([float("inf"), rng.random()])
        sequence = make_sequence(id, is_final=rng.random() < 0.3, deadline=deadline)
        if len(waiting) < 10:
            scheduler.add(sequence)
            waiting.append(sequence)
        if rng.random() < 0.2:
            gone = waiting.pop(rng.randrange(len(waiting)))
            scheduler.release(gone)
        elif rng.random() < 0.7 and waiting:
            waiting.sort(key=lambda s: (s.deadline == float("inf"), not s.is_final, s.deadline))
            work = scheduler.next()
            assert encoded(work) == [waiting[0].id]
            scheduler.release(waiting.pop(0))
