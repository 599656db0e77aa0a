"""The step loop around a runner without a model: what is answered, and that nothing leaks."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Sequence as Rows
from types import SimpleNamespace
from typing import NoReturn

import pytest
import torch

from engine.api import EngineBusy, EngineError, Hypothesis, StreamLost
from engine.batching.recovery import GROW_INTERVAL_S, MAX_FAILED_STEPS
from engine.batching.request import Request, Result
from engine.batching.scheduler import Step
from engine.batching.sequence import Sequence
from tests.support.engine_loop import LoopSetup


def test_a_window_is_encoded_then_decoded_to_its_end() -> None:
    setup = LoopSetup()
    setup.loop.submit(setup.request(1))
    setup.run(4)
    result = setup.results[1]
    assert isinstance(result, Hypothesis) and result.tokens == (0, 1, 2)
    assert setup.is_empty


def test_an_aborted_window_is_never_answered_and_frees_all() -> None:
    for steps in range(4):
        setup = LoopSetup()
        request = setup.request(1)
        setup.loop.submit(request)
        setup.run(steps)
        setup.loop.abort(request)
        setup.loop.abort(request)
        setup.run(3)
        assert not setup.results and setup.is_empty


def test_aborting_what_is_done_does_nothing() -> None:
    setup = LoopSetup()
    request = setup.request(1)
    setup.loop.submit(request)
    setup.run(6)
    setup.loop.abort(request)
    setup.run(2)
    assert isinstance(setup.results[1], Hypothesis)


def test_a_replaced_window_is_answered() -> None:
    setup = LoopSetup()
    setup.loop.submit(setup.request(1, stream_id=5))
    setup.run(2)
    setup.loop.submit(setup.request(2, stream_id=5))
    setup.run(6)
    assert isinstance(setup.results[1], EngineBusy)
    assert isinstance(setup.results[2], Hypothesis)
    assert setup.is_empty


def test_a_refused_window_is_answered() -> None:
    setup = LoopSetup(max_waiting=2)
    for id in range(3):
        setup.loop.submit(setup.request(id))
    setup.run(1)
    assert isinstance(setup.results[2], EngineBusy)
    setup.run(8)
    assert isinstance(setup.results[0], Hypothesis) and isinstance(setup.results[1], Hypothesis)


def test_out_of_memory_lowers_what_runs_at_once(caplog: pytest.LogCaptureFixture) -> None:
    setup = LoopSetup()
    setup.runner.max_in_step = 2
    for id in range(6):
        setup.loop.submit(setup.request(id))
    setup.run(40)
    # nothing is lost, so nothing has to be asked for again
    assert all(setup.tokens_of(id) == (0, 1, 2) for id in range(6))
    assert setup.scheduler.max_batch <= 2 and "out of memory" in caplog.text
    assert setup.is_empty
    # and memory is not asked for too much of again
    setup.counters.num_failures = 0
    for id in range(6, 12):
        setup.loop.submit(setup.request(id))
    setup.run(60)
    assert all(setup.tokens_of(id) == (0, 1, 2) for id in range(6, 12))
    assert not setup.counters.num_failures


def test_a_window_alone_that_memory_is_too_short_for_is_answered() -> None:
    setup = LoopSetup()
    setup.runner.max_in_step = 0
    setup.loop.submit(setup.request(1))
    setup.run(3)
    assert isinstance(setup.results[1], StreamLost) and "memory" in str(setup.results[1])
    assert setup.is_empty


def test_what_runs_at_once_grows_back_after_memory_was_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [1000.0]
    clock = SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr("engine.batching.recovery.time", clock)
    setup = LoopSetup()
    setup.runner.max_in_step = 1
    for id in range(8):
        setup.loop.submit(setup.request(id))
    setup.run(40)
    setup.runner.max_in_step = None
    assert setup.scheduler.max_batch == 1
    limits = []
    for _ in range(9):
        now[0] += GROW_INTERVAL_S
        setup.run(1)
        limits.append(setup.scheduler.max_batch)
    assert limits == [2, 3, 4, 5, 6, 7, 8, 8, 8]
    # where nothing ran meanwhile, all of it comes back at once
    setup.scheduler.reduce_batch(Step(()))
    now[0] += 60 * GROW_INTERVAL_S
    setup.run(1)
    assert setup.scheduler.max_batch == 8 and not setup.scheduler.is_reduced


def test_a_bug_costs_only_the_windows_that_met_it(caplog: pytest.LogCaptureFixture) -> None:
    setup = LoopSetup()
    setup.runner.failing.add(1)
    setup.loop.submit(setup.request(1))
    setup.run(2)
    assert isinstance(setup.results[1], StreamLost)
    assert "a kernel failed" in caplog.text
    assert setup.counters.num_failures == 1
    assert "kernel" not in str(setup.results[1])
    setup.loop.submit(setup.request(2))
    setup.run(5)
    assert isinstance(setup.results[2], Hypothesis) and setup.is_empty


def test_a_fault_in_one_windows_text_costs_that_window_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    setup = LoopSetup()
    setup.unfinishable.add(2)
    for id in (1, 2, 3):
        setup.loop.submit(setup.request(id))
    setup.run(8)
    assert isinstance(setup.results[2], StreamLost) and "token" not in str(setup.results[2])
    assert setup.tokens_of(1) == setup.tokens_of(3) == (0, 1, 2)
    assert setup.counters.num_failures == 1 and "no such token" in caplog.text
    assert setup.is_empty


@pytest.mark.parametrize("bad", [{0}, {3}, {7}, {1, 6}])
def test_a_step_that_fails_costs_the_windows_that_are_at_fault(bad: set[int]) -> None:
    setup = LoopSetup()
    setup.runner.failing |= bad
    for id in range(8):
        setup.loop.submit(setup.request(id))
    setup.run(20)
    for id in range(8):
        if id in bad:
            assert isinstance(setup.results[id], StreamLost)
        else:
            assert setup.tokens_of(id) == (0, 1, 2), "as if it had been alone"
    assert setup.is_empty


@pytest.mark.parametrize("num_threads", [0, 1])
def test_an_encode_that_fails_costs_the_windows_that_are_at_fault(num_threads: int) -> None:
    setup = LoopSetup(num_threads=num_threads)
    setup.runner.unreadable |= {1}
    for id in range(4):
        setup.loop.submit(setup.request(id))
    setup.run(60)
    assert isinstance(setup.results[1], StreamLost)
    assert all(setup.tokens_of(id) == (0, 1, 2) for id in (0, 2, 3))
    assert setup.is_empty


def test_windows_aborted_while_their_encode_fails_are_not_encoded_again() -> None:
    setup = LoopSetup(num_threads=1)
    setup.runner.unreadable |= {1}
    requests = [setup.request(id) for id in range(4)]
    for request in requests:
        setup.loop.submit(request)
    setup.loop.step()
    for request in requests[1:]:
        setup.loop.abort(request)
    setup.run(60)
    assert setup.tokens_of(0) == (0, 1, 2) and set(setup.results) == {0}
    assert setup.is_empty


def test_a_failure_that_moves_on_ends_all_the_same() -> None:
    setup = LoopSetup()
    setup.loop.submit(setup.request(1))
    setup.loop.submit(setup.request(2))
    step = setup.runner.step

    def fail_with_two(sequences: Rows[Sequence]) -> None:
        if len(sequences) > 1:  # and never with one alone
            raise RuntimeError("read too late")
        sequences[0].tokens.clear()
        step(sequences)

    setup.runner.step = fail_with_two  # type: ignore[method-assign]
    setup.run(3 * MAX_FAILED_STEPS)
    assert isinstance(setup.results[1], StreamLost) and isinstance(setup.results[2], StreamLost)
    assert setup.is_empty


def test_closing_answers_what_is_left() -> None:
    setup = LoopSetup()
    setup.loop.submit(setup.request(1, num_tokens=10_000_000))
    setup.loop.start()
    setup.loop.close()
    assert isinstance(setup.results[1], StreamLost)
    with pytest.raises(StreamLost):
        setup.loop.submit(setup.request(2))


def _raise(*_: object, **__: object) -> NoReturn:
    raise AssertionError("what only our bug can cause")


@pytest.mark.parametrize("fault", ["add", "next", "release", "tidy", "device", "encoder"])
def test_a_thread_that_dies_answers_all_and_says_so(
    fault: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("engine.batching.loop.TIDY_INTERVAL_S", 0.0)
    setup = LoopSetup(num_threads=fault == "encoder", tidy=lambda: None)
    loop = setup.loop
    if fault == "tidy":
        setup.loop._tidy = _raise
    elif fault == "device":
        setup.runner.errors[1] = torch.AcceleratorError("an illegal memory access")
    elif fault == "encoder":
        monkeypatch.setattr(setup.pool, "_take", _raise)
    else:
        monkeypatch.setattr(setup.scheduler, fault, _raise)
    if fault == "tidy":
        loop._has_worked = True
    for id in range(3):
        loop.submit(setup.request(id))
    loop.start()
    deadline = time.monotonic() + 30
    while not loop.has_died:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    loop._thread.join(30)
    assert set(setup.results) == {0, 1, 2}
    assert any(isinstance(result, StreamLost) for result in setup.results.values())
    assert "the engine's thread died" in caplog.text
    with pytest.raises(StreamLost):
        loop.submit(setup.request(3))
    loop.close()
    assert set(setup.results) == {0, 1, 2}


def test_the_thread_sleeps_and_wakes() -> None:
    setup = LoopSetup()
    setup.loop.start()
    done = threading.Event()
    request = setup.request(1)
    answer = request.on_done

    def on_done(result: Result) -> None:
        answer(result)
        done.set()

    request.on_done = on_done
    setup.loop.submit(request)
    assert done.wait(30)
    setup.loop.close()


def test_a_thousand_random_requests_leave_nothing_behind() -> None:
    rng = random.Random(5)
    setup = LoopSetup(max_waiting=12)
    requests: list[Request] = []
    for id in range(1000):
        request = setup.request(id, stream_id=rng.randrange(25), num_tokens=rng.randint(1, 12))
        if rng.random() < 0.02:
            setup.runner.failing.add(id)
        setup.loop.submit(request)
        requests.append(request)
        if rng.random() < 0.3:
            setup.loop.abort(rng.choice(requests))
        setup.run(rng.randrange(3))
    for request in requests[-60:]:
        setup.loop.abort(request)
    setup.run(100)
    assert setup.is_empty
    kinds = {type(result) for result in setup.results.values()}
    assert kinds == {Hypothesis, EngineBusy, StreamLost}
    assert all(isinstance(o, Hypothesis | EngineError) for o in setup.results.values())


def test_memory_is_given_back_while_there_is_always_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.batching.loop.IDLE_S", 1000.0)
    monkeypatch.setattr("engine.batching.loop.TIDY_INTERVAL_S", 0.05)
    tidied = threading.Semaphore(0)
    setup = LoopSetup(max_waiting=1000, tidy=tidied.release)
    loop = setup.loop
    loop.start()
    try:
        ids = itertools.count()
        deadline = time.monotonic() + 30
        while not tidied.acquire(timeout=0.005):
            assert time.monotonic() < deadline
            loop.submit(setup.request(next(ids)))
    finally:
        loop.close()


def test_memory_is_given_back_once_after_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.batching.loop.IDLE_S", 0.02)
    monkeypatch.setattr("engine.batching.loop.TIDY_INTERVAL_S", 0.5)
    tidied = threading.Semaphore(0)
    setup = LoopSetup(max_waiting=9, tidy=tidied.release)
    loop = setup.loop
    loop.start()
    try:
        assert not tidied.acquire(timeout=0.6)  # no work, nothing to give back
        loop.submit(setup.request(1))
        assert tidied.acquire(timeout=30)
        monkeypatch.setattr("engine.batching.loop.TIDY_INTERVAL_S", 1000.0)
        while tidied.acquire(timeout=1.0):  # where the machine was slow, once more before that
            pass
        loop.submit(setup.request(2))
        assert not tidied.acquire(timeout=0.2)  # not again at once
        deadline = time.monotonic() + 30
        while 2 not in setup.results and time.monotonic() < deadline:
            time.sleep(0.01)
        assert isinstance(setup.results[2], Hypothesis)
        assert not tidied.acquire(timeout=0.1)
    finally:
        loop.close()
