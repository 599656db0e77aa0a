"""The step loop around a runner without a model: who is answered, and that nothing leaks."""

from __future__ import annotations

import itertools
import math
import random
import threading
import time
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Rows

import numpy as np
import pytest
import torch

from engine.api import (
    EngineBusy,
    EngineError,
    Hypothesis,
    Samples,
    StreamLost,
    StreamOptions,
    Window,
)
from engine.batching.counters import Counters
from engine.batching.encoder_pool import MAX_PASSED, EncoderPool
from engine.batching.loop import Loop
from engine.batching.page_pool import PagePool
from engine.batching.request import Request, Result, StreamState
from engine.batching.scheduler import Encode, Scheduler, Step
from engine.batching.sequence import Sequence
from engine.decoding.language import StreamLanguage
from engine.model.folded_tail import KeptPositions

NUM_PIECES = 6  # of an encode aside


class FakeRunner:
    """Says as many tokens as the window has seconds; fails on request."""

    def __init__(self) -> None:
        self.failing: set[int] = set()
        self.unreadable: set[int] = set()  # fail while they are encoded aside
        self.room: int | None = None  # sequences that memory is enough for in one step
        self.held: set[int] = set()
        self.num_pieces = 0

    def encode(self, sequences: Rows[Sequence], audio: Rows[Samples]) -> None:
        self.held |= {sequence.id for sequence in sequences}

    def encode_in_pieces(self, sequences: Rows[Sequence], audio: Rows[Samples]) -> Iterator[int]:
        for num_left in range(NUM_PIECES - 1, 0, -1):
            self.num_pieces += 1
            if any(sequence.id in self.unreadable for sequence in sequences):
                raise RuntimeError("an encode failed")
            yield num_left
        self.encode([sequence for sequence in sequences if sequence.cross_pages], audio)

    def step(self, sequences: Rows[Sequence]) -> None:
        if self.room is not None and len(sequences) > self.room:
            raise torch.OutOfMemoryError("CUDA out of memory")
        for sequence in sequences:
            assert sequence.self_pages and sequence.cross_pages
            assert sequence.id in self.held, "decoded before it was encoded"
            if sequence.id in self.failing:
                raise RuntimeError("a kernel failed")
            sequence.tokens.append(len(sequence.tokens))
            sequence.is_ended = len(sequence.tokens) == sequence.max_tokens

    def forget(self, sequence: Sequence) -> None:
        self.held.discard(sequence.id)


class Setup:
    def __init__(self, max_waiting: int = 50, is_aside: bool = False, num_threads: int = 1) -> None:
        self.pools = (PagePool(20, 16), PagePool(60, 50))
        self.runner = FakeRunner()
        scheduler = Scheduler(
            *self.pools,
            max_batch=8,
            max_encode_batch=4,
            max_encode_positions=1500,
            max_waiting=max_waiting,
            max_background_batch=1 if is_aside else None,
        )
        self.counters = Counters()
        self.aside = EncoderPool(self.runner.encode_in_pieces, num_threads) if is_aside else None
        self.loop = Loop(scheduler, self.runner, self.settle, self.counters, aside=self.aside)
        self.outcomes: dict[int, Result] = {}

    def settle(self, request: Request) -> bool:
        window, tokens = request.window, tuple(request.sequence.tokens)
        request.on_done(Hypothesis(window.start, window.end, (), "en", 1.0, tokens=tokens))
        return True

    def request(
        self,
        id: int,
        stream_id: int | None = None,
        num_tokens: int = 3,
        deadline: float = 0.0,
        is_final: bool = False,
    ) -> Request:
        def on_done(outcome: Result) -> None:
            assert id not in self.outcomes, "answered twice"
            self.outcomes[id] = outcome

        stream_id = id if stream_id is None else stream_id
        state = StreamState(stream_id, StreamOptions(), StreamLanguage("en"))
        sequence = Sequence(
            id, stream_id, is_final, deadline, KeptPositions(200), [0], num_tokens, 0
        )
        return Request(state, Window(0, np.zeros(16_000, np.float32)), sequence, on_done)

    @property
    def is_empty(self) -> bool:
        return not self.runner.held and all(p.num_free == p.num_pages for p in self.pools)

    def run(self, turns: int) -> None:
        """Let both threads' turns alternate."""
        for _ in range(turns):
            self.loop.turn()
            if self.aside is not None:
                self.aside.turn()


def test_a_window_is_encoded_then_decoded_to_its_end() -> None:
    setup = Setup()
    setup.loop.submit(setup.request(1))
    setup.run(4)
    outcome = setup.outcomes[1]
    assert isinstance(outcome, Hypothesis) and outcome.tokens == (0, 1, 2)
    assert setup.is_empty


def test_an_aborted_window_is_never_answered_and_frees_all() -> None:
    for turns in range(4):
        setup = Setup()
        request = setup.request(1)
        setup.loop.submit(request)
        setup.run(turns)
        setup.loop.abort(request)
        setup.loop.abort(request)
        setup.run(3)
        assert not setup.outcomes and setup.is_empty


def test_aborting_what_is_done_does_nothing() -> None:
    setup = Setup()
    request = setup.request(1)
    setup.loop.submit(request)
    setup.run(6)
    setup.loop.abort(request)
    setup.run(2)
    assert isinstance(setup.outcomes[1], Hypothesis)


def test_a_replaced_window_is_answered() -> None:
    setup = Setup()
    setup.loop.submit(setup.request(1, stream_id=5))
    setup.run(2)
    setup.loop.submit(setup.request(2, stream_id=5))
    setup.run(6)
    assert isinstance(setup.outcomes[1], EngineBusy)
    assert isinstance(setup.outcomes[2], Hypothesis)
    assert setup.is_empty


def test_who_is_refused_hears_of_it() -> None:
    setup = Setup(max_waiting=2)
    for id in range(3):
        setup.loop.submit(setup.request(id))
    setup.run(1)
    assert isinstance(setup.outcomes[2], EngineBusy)
    setup.run(8)
    assert isinstance(setup.outcomes[0], Hypothesis) and isinstance(setup.outcomes[1], Hypothesis)


def test_out_of_memory_lowers_what_runs_at_once(caplog: pytest.LogCaptureFixture) -> None:
    setup = Setup()
    setup.runner.room = 2
    asked: list[int] = []
    missing = set(range(6))
    while missing:  # as sessions do: what was lost is asked for again
        for id in missing:
            setup.outcomes.pop(id, None)
            setup.loop.submit(setup.request(id))
        asked.append(len(missing))
        setup.run(40)
        missing = {id for id in missing if not isinstance(setup.outcomes[id], Hypothesis)}
        assert len(asked) < 5
    assert len(asked) > 1 and "out of memory" in caplog.text
    assert setup.is_empty


def test_a_bug_costs_only_those_that_met_it(caplog: pytest.LogCaptureFixture) -> None:
    setup = Setup()
    setup.runner.failing.add(1)
    setup.loop.submit(setup.request(1))
    setup.run(2)
    assert isinstance(setup.outcomes[1], StreamLost)
    assert "a kernel failed" in caplog.text
    assert setup.counters.num_failures == 1
    assert "kernel" not in str(setup.outcomes[1])
    setup.loop.submit(setup.request(2))
    setup.run(5)
    assert isinstance(setup.outcomes[2], Hypothesis) and setup.is_empty


def test_closing_answers_what_is_left() -> None:
    setup = Setup()
    setup.loop.submit(setup.request(1, num_tokens=10_000_000))
    setup.loop.start()
    setup.loop.close()
    assert isinstance(setup.outcomes[1], StreamLost)
    with pytest.raises(StreamLost):
        setup.loop.submit(setup.request(2))


def test_the_thread_sleeps_and_wakes() -> None:
    setup = Setup()
    setup.loop.start()
    done = threading.Event()
    request = setup.request(1)
    answer = request.on_done

    def on_done(outcome: Result) -> None:
        answer(outcome)
        done.set()

    request.on_done = on_done
    setup.loop.submit(request)
    assert done.wait(30)
    setup.loop.close()


def test_a_thousand_random_requests_leave_nothing_behind() -> None:
    rng = random.Random(5)
    setup = Setup(max_waiting=12)
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
    kinds = {type(outcome) for outcome in setup.outcomes.values()}
    assert kinds == {Hypothesis, EngineBusy, StreamLost}
    assert all(isinstance(o, Hypothesis | EngineError) for o in setup.outcomes.values())


def test_who_speaks_overtakes_a_window_that_nobody_awaits() -> None:
    setup = Setup(is_aside=True)
    setup.loop.submit(setup.request(1, deadline=math.inf))
    setup.loop.submit(setup.request(2, deadline=math.inf))
    setup.run(3)
    assert setup.runner.num_pieces == 3
    setup.loop.submit(setup.request(3))
    setup.run(NUM_PIECES + 4)
    assert isinstance(setup.outcomes[3], Hypothesis) and len(setup.outcomes) == 1
    setup.run(2 * NUM_PIECES + 8)
    assert isinstance(setup.outcomes[1], Hypothesis) and isinstance(setup.outcomes[2], Hypothesis)
    assert setup.is_empty


def test_a_final_is_encoded_before_partials_that_are_half_done() -> None:
    setup = Setup(is_aside=True)
    for id in range(5):  # four in a batch
        setup.loop.submit(setup.request(id))
    setup.run(2)
    setup.loop.submit(setup.request(9, is_final=True))
    setup.run(NUM_PIECES + 4)
    assert set(setup.outcomes) == {9}
    setup.run(3 * NUM_PIECES)
    assert len(setup.outcomes) == 6 and setup.is_empty


def test_partials_leave_a_final_that_decodes_a_core_of_its_own() -> None:
    setup = Setup(is_aside=True, num_threads=2)
    assert setup.aside is not None
    aside, audio = setup.aside, [np.zeros(16_000, np.float32)]

    def put(id: int, is_final: bool) -> Sequence:
        sequence = setup.request(id, is_final=is_final).sequence
        aside.put(Encode((sequence,)), audio, is_background=False)
        return sequence

    put(1, is_final=False)
    partial = put(2, is_final=False)
    aside.note_decoding(Step((setup.request(9, is_final=True).sequence, partial)))
    first = aside._choose()
    assert first is not None
    assert aside._take(first) == 1
    assert aside._choose() is None
    urgent = put(3, is_final=True)
    chosen = aside._choose()
    assert chosen is not None and chosen.work.sequences == (urgent,)
    aside._take(chosen)
    aside.note_decoding(Step((partial,)))
    assert aside._choose() is not None


def test_asking_what_is_next_costs_the_background_no_turn() -> None:
    setup = Setup(is_aside=True)
    assert setup.aside is not None
    aside, audio = setup.aside, [np.zeros(16_000, np.float32)]
    aside.put(Encode((setup.request(0, deadline=math.inf).sequence,)), audio, is_background=True)
    for id in range(1, MAX_PASSED + 2):
        aside.put(Encode((setup.request(id).sequence,)), audio, is_background=False)
    while aside._num_passed < MAX_PASSED:
        aside.turn()
    for _ in range(2):
        chosen = aside._choose()
        assert chosen is not None and chosen.is_background
    aside.turn()
    chosen = aside._choose()
    assert chosen is not None and not chosen.is_background


def test_a_window_in_the_background_gets_on_however_much_is_said() -> None:
    setup = Setup(is_aside=True)
    setup.loop.submit(setup.request(0, deadline=math.inf))
    for id in range(1, 200):
        setup.loop.submit(setup.request(id))
        setup.run(3)
    assert isinstance(setup.outcomes[0], Hypothesis)


def test_others_decode_while_a_window_is_encoded_aside() -> None:
    setup = Setup(is_aside=True)
    setup.loop.submit(setup.request(1, num_tokens=NUM_PIECES + 2))
    setup.run(NUM_PIECES)
    setup.loop.submit(setup.request(2))
    setup.run(1)  # gives it to the encoder
    assert setup.runner.num_pieces == NUM_PIECES
    setup.run(3)
    assert setup.runner.num_pieces == NUM_PIECES + 3
    assert len(setup.loop._requests[1].sequence.tokens) == 3, "a step beside every piece"


def test_the_next_window_comes_before_the_encoder_has_nothing_to_do() -> None:
    setup = Setup(is_aside=True)
    assert setup.aside is not None
    for id in range(5):  # four in a batch
        setup.loop.submit(setup.request(id))
    for _ in range(2 * NUM_PIECES):
        setup.loop.turn()
        assert setup.aside.turn(), "there is always a piece to do"


def test_as_many_are_encoded_at_once_as_there_are_threads() -> None:
    setup = Setup(is_aside=True, num_threads=2)
    assert setup.aside is not None
    for id in range(9):  # four in a batch
        setup.loop.submit(setup.request(id))
    setup.loop.turn()
    assert setup.aside.room.partials
    setup.loop.turn()
    assert not setup.aside.room.partials
    setup.loop.turn()
    assert setup.runner.num_pieces == 0 and not setup.outcomes
    setup.run(6 * NUM_PIECES)
    assert len(setup.outcomes) == 9 and setup.is_empty


@pytest.mark.parametrize("deadline", [0.0, math.inf])
def test_a_window_encoded_aside_that_is_aborted_frees_all(deadline: float) -> None:
    for turns in range(NUM_PIECES + 3):
        setup = Setup(is_aside=True)
        request = setup.request(1, deadline=deadline)
        setup.loop.submit(request)
        setup.run(turns)
        setup.loop.abort(request)
        setup.loop.submit(setup.request(2, deadline=deadline))
        setup.run(3 * NUM_PIECES)
        assert set(setup.outcomes) == {2} and setup.is_empty


@pytest.mark.parametrize("deadline", [0.0, math.inf])
def test_a_window_encoded_aside_that_is_replaced_is_encoded_no_further(deadline: float) -> None:
    setup = Setup(is_aside=True)
    setup.loop.submit(setup.request(1, stream_id=5, deadline=deadline))
    setup.run(3)
    setup.loop.submit(setup.request(2, stream_id=5, deadline=deadline))
    setup.run(12)
    assert isinstance(setup.outcomes[1], EngineBusy)
    assert isinstance(setup.outcomes[2], Hypothesis)
    assert setup.runner.num_pieces < 2 * NUM_PIECES - 2
    assert setup.counters.num_failures == 0 and setup.is_empty


def test_one_of_a_batch_encoded_aside_may_leave() -> None:
    setup = Setup(is_aside=True)
    requests = [setup.request(id) for id in range(2)]
    for request in requests:
        setup.loop.submit(request)
    setup.run(3)
    setup.loop.abort(requests[0])
    setup.run(2 * NUM_PIECES)
    assert set(setup.outcomes) == {1} and setup.is_empty


def test_an_encode_aside_that_fails_costs_only_its_windows(
    caplog: pytest.LogCaptureFixture,
) -> None:
    setup = Setup(is_aside=True)
    setup.runner.unreadable.add(1)
    setup.loop.submit(setup.request(1))
    setup.run(3)
    setup.loop.submit(setup.request(2))
    setup.run(2 * NUM_PIECES)
    assert isinstance(setup.outcomes[1], StreamLost) and "an encode failed" in caplog.text
    assert isinstance(setup.outcomes[2], Hypothesis)
    assert setup.counters.num_failures == 1 and setup.is_empty


@pytest.mark.parametrize("num_threads", [1, 3])
def test_encoders_and_decoder_answer_all_and_leave_nothing_behind(num_threads: int) -> None:
    rng = random.Random(8)
    setup = Setup(max_waiting=12, is_aside=True, num_threads=num_threads)
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
    while set(range(600)) - set(setup.outcomes) - aborted and time.monotonic() < limit:
        time.sleep(0.01)
    setup.loop.close()
    assert not set(range(600)) - set(setup.outcomes) - aborted
    assert setup.is_empty


def make_tidying_loop(setup: Setup, tidy: Callable[[], None]) -> Loop:
    scheduler = Scheduler(
        *setup.pools, max_batch=8, max_encode_batch=4, max_encode_positions=1500, max_waiting=9
    )
    return Loop(scheduler, setup.runner, setup.settle, setup.counters, tidy=tidy)


def test_memory_is_given_back_while_there_is_always_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.batching.loop.IDLE_S", 1000.0)
    monkeypatch.setattr("engine.batching.loop.TIDY_S", 0.05)
    setup = Setup(max_waiting=1000)
    tidied = threading.Semaphore(0)
    loop = make_tidying_loop(setup, tidied.release)
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
    monkeypatch.setattr("engine.batching.loop.TIDY_S", 0.5)
    setup = Setup()
    tidied = threading.Semaphore(0)
    loop = make_tidying_loop(setup, tidied.release)
    loop.start()
    try:
        assert not tidied.acquire(timeout=0.6)  # no work, nothing to give back
        loop.submit(setup.request(1))
        assert tidied.acquire(timeout=30)
        monkeypatch.setattr("engine.batching.loop.TIDY_S", 1000.0)
        while tidied.acquire(timeout=1.0):  # where the machine was slow, once more before that
            pass
        loop.submit(setup.request(2))
        assert not tidied.acquire(timeout=0.2)  # not again at once
        deadline = time.monotonic() + 30
        while 2 not in setup.outcomes and time.monotonic() < deadline:
            time.sleep(0.01)
        assert isinstance(setup.outcomes[2], Hypothesis)
        assert not tidied.acquire(timeout=0.1)
    finally:
        loop.close()
