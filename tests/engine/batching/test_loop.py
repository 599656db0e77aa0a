"""The step loop around a runner without a model: what is answered, and that nothing leaks."""

from __future__ import annotations

import itertools
import random
import threading
import time

import pytest

from engine.api import EngineBusy, EngineError, Hypothesis, StreamLost
from engine.batching.request import Request, Result
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
    asked: list[int] = []
    missing = set(range(6))
    while missing:  # as sessions do: what was lost is asked for again
        for id in missing:
            setup.results.pop(id, None)
            setup.loop.submit(setup.request(id))
        asked.append(len(missing))
        setup.run(40)
        missing = {id for id in missing if not isinstance(setup.results[id], Hypothesis)}
        assert len(asked) < 5
    assert len(asked) > 1 and "out of memory" in caplog.text
    assert setup.is_empty


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


def test_closing_answers_what_is_left() -> None:
    setup = LoopSetup()
    setup.loop.submit(setup.request(1, num_tokens=10_000_000))
    setup.loop.start()
    setup.loop.close()
    assert isinstance(setup.results[1], StreamLost)
    with pytest.raises(StreamLost):
        setup.loop.submit(setup.request(2))


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
