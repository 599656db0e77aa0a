"""Encoding in threads beside the loop: what goes first, and that nothing leaks."""

from __future__ import annotations

import math
import random
import time

import numpy as np
import pytest

from engine.api import EngineBusy, Hypothesis, StreamLost
from engine.batching.encoder_threads import MAX_PREEMPTIONS
from engine.batching.request import Request
from engine.batching.scheduler import Encode, Step
from engine.batching.sequence import Sequence
from tests.support.engine_loop import NUM_PIECES, LoopSetup


def test_an_awaited_window_preempts_one_of_a_recording() -> None:
    setup = LoopSetup(num_threads=1)
    setup.loop.submit(setup.request(1, deadline=math.inf))
    setup.loop.submit(setup.request(2, deadline=math.inf))
    setup.run(3)
    assert setup.runner.num_pieces == 3
    setup.loop.submit(setup.request(3))
    setup.run(NUM_PIECES + 4)
    assert isinstance(setup.results[3], Hypothesis) and len(setup.results) == 1
    setup.run(2 * NUM_PIECES + 8)
    assert isinstance(setup.results[1], Hypothesis) and isinstance(setup.results[2], Hypothesis)
    assert setup.is_empty


def test_a_final_is_encoded_before_partials_that_are_half_done() -> None:
    setup = LoopSetup(num_threads=1)
    for id in range(5):  # four in a batch
        setup.loop.submit(setup.request(id))
    setup.run(2)
    setup.loop.submit(setup.request(9, is_final=True))
    setup.run(NUM_PIECES + 4)
    assert set(setup.results) == {9}
    setup.run(3 * NUM_PIECES)
    assert len(setup.results) == 6 and setup.is_empty


def test_partials_leave_a_final_that_decodes_a_core_of_its_own() -> None:
    setup = LoopSetup(num_threads=2)
    assert setup.pool is not None
    pool, audio = setup.pool, [np.zeros(16_000, np.float32)]

    def put(id: int, is_final: bool) -> Sequence:
        sequence = setup.request(id, is_final=is_final).sequence
        pool.start(Encode((sequence,)), audio)
        return sequence

    put(1, is_final=False)
    partial = put(2, is_final=False)
    pool.make_way(Step((setup.request(9, is_final=True).sequence, partial)))
    first = pool._next()
    assert first is not None
    assert pool._take(first) == 1
    assert pool._next() is None
    urgent = put(3, is_final=True)
    chosen = pool._next()
    assert chosen is not None and chosen.work.sequences == (urgent,)
    pool._take(chosen)
    pool.make_way(Step((partial,)))
    assert pool._next() is not None


def test_asking_what_is_next_costs_the_background_no_piece() -> None:
    setup = LoopSetup(num_threads=1)
    assert setup.pool is not None
    pool, audio = setup.pool, [np.zeros(16_000, np.float32)]
    pool.start(Encode((setup.request(0, deadline=math.inf).sequence,)), audio)
    for id in range(1, MAX_PREEMPTIONS + 2):
        pool.start(Encode((setup.request(id).sequence,)), audio)
    while pool._num_preemptions < MAX_PREEMPTIONS:
        pool.encode_piece()
    for _ in range(2):
        chosen = pool._next()
        assert chosen is not None and chosen.work.is_background
    pool.encode_piece()
    chosen = pool._next()
    assert chosen is not None and not chosen.work.is_background


def test_a_window_in_the_background_advances_however_many_are_awaited() -> None:
    setup = LoopSetup(num_threads=1)
    setup.loop.submit(setup.request(0, deadline=math.inf))
    for id in range(1, 200):
        setup.loop.submit(setup.request(id))
        setup.run(3)
    assert isinstance(setup.results[0], Hypothesis)


def test_others_decode_while_a_window_is_encoded_in_the_pool() -> None:
    setup = LoopSetup(num_threads=1)
    setup.loop.submit(setup.request(1, num_tokens=NUM_PIECES + 2))
    setup.run(NUM_PIECES)
    setup.loop.submit(setup.request(2))
    setup.run(1)  # hands it to the encoder
    assert setup.runner.num_pieces == NUM_PIECES
    setup.run(3)
    assert setup.runner.num_pieces == NUM_PIECES + 3
    assert len(setup.loop._requests[1].sequence.tokens) == 3, "a step beside every piece"


def test_the_next_window_comes_before_the_encoder_has_nothing_to_do() -> None:
    setup = LoopSetup(num_threads=1)
    assert setup.pool is not None
    for id in range(5):  # four in a batch
        setup.loop.submit(setup.request(id))
    for _ in range(2 * NUM_PIECES):
        setup.loop.step()
        assert setup.pool.encode_piece(), "there is always a piece to do"


def test_as_many_are_encoded_at_once_as_there_are_threads() -> None:
    setup = LoopSetup(num_threads=2)
    assert setup.pool is not None
    for id in range(9):  # four in a batch
        setup.loop.submit(setup.request(id))
    setup.loop.step()
    assert setup.pool.admission.partials
    setup.loop.step()
    assert not setup.pool.admission.partials
    setup.loop.step()
    assert setup.runner.num_pieces == 0 and not setup.results
    setup.run(6 * NUM_PIECES)
    assert len(setup.results) == 9 and setup.is_empty


@pytest.mark.parametrize("deadline", [0.0, math.inf])
def test_a_window_encoded_in_the_pool_that_is_aborted_frees_all(deadline: float) -> None:
    for steps in range(NUM_PIECES + 3):
        setup = LoopSetup(num_threads=1)
        request = setup.request(1, deadline=deadline)
        setup.loop.submit(request)
        setup.run(steps)
        setup.loop.abort(request)
        setup.loop.submit(setup.request(2, deadline=deadline))
        setup.run(3 * NUM_PIECES)
        assert set(setup.results) == {2} and setup.is_empty


@pytest.mark.parametrize("deadline", [0.0, math.inf])
def test_a_window_encoded_in_the_pool_that_is_replaced_is_encoded_no_further(
    deadline: float,
) -> None:
    setup = LoopSetup(num_threads=1)
    setup.loop.submit(setup.request(1, stream_id=5, deadline=deadline))
    setup.run(3)
    setup.loop.submit(setup.request(2, stream_id=5, deadline=deadline))
    setup.run(12)
    assert isinstance(setup.results[1], EngineBusy)
    assert isinstance(setup.results[2], Hypothesis)
    assert setup.runner.num_pieces < 2 * NUM_PIECES - 2
    assert setup.counters.num_failures == 0 and setup.is_empty


def test_one_of_a_batch_encoded_in_the_pool_may_leave() -> None:
    setup = LoopSetup(num_threads=1)
    requests = [setup.request(id) for id in range(2)]
    for request in requests:
        setup.loop.submit(request)
    setup.run(3)
    setup.loop.abort(requests[0])
    setup.run(2 * NUM_PIECES)
    assert set(setup.results) == {1} and setup.is_empty


def test_an_encode_in_the_pool_that_fails_costs_only_its_windows(
    caplog: pytest.LogCaptureFixture,
) -> None:
    setup = LoopSetup(num_threads=1)
    setup.runner.unreadable.add(1)
    setup.loop.submit(setup.request(1))
    setup.run(3)
    setup.loop.submit(setup.request(2))
    setup.run(2 * NUM_PIECES)
    assert isinstance(setup.results[1], StreamLost) and "an encode failed" in caplog.text
    assert isinstance(setup.results[2], Hypothesis)
    assert setup.counters.num_failures == 1 and setup.is_empty


@pytest.mark.parametrize("num_threads", [1, 3])
def test_encoders_and_decoder_answer_all_and_leave_nothing_behind(num_threads: int) -> None:
    rng = random.Random(8)
    setup = LoopSetup(max_waiting=12, num_threads=num_threads)
    setup.loop.start()
    requests: list[Request] = []
    aborted: set[int] = set()
    for id in range(600):
        deadline = math.inf if rng.random() < 0.2 else 0.0
        request = setup.request(id, rng.randrange(25), rng.randint(1, 12), deadline)
        for failing in (setup.runner.failing, setup.runner.unreadable):
            if rng.random() < 0.02:
                failing.add(id)
        setup.loop.submit(request)
        requests.append(request)
        if rng.random() < 0.3:
            chosen = rng.choice(requests)
            aborted.add(chosen.sequence.id)
            setup.loop.abort(chosen)
        if rng.random() < 0.2:
            time.sleep(0.001)
    limit = time.monotonic() + 30
    while set(range(600)) - set(setup.results) - aborted and time.monotonic() < limit:
        time.sleep(0.01)
    setup.loop.close()
    assert not set(range(600)) - set(setup.results) - aborted
    assert setup.is_empty
