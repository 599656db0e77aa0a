"""The loop around a device that encodes beside it and answers one step late."""

from __future__ import annotations

import time
from collections.abc import Sequence as Rows

import pytest

from engine.api import Hypothesis, Samples, StreamLost
from engine.batching.device_encoder import DeviceEncoder
from engine.batching.scheduler import ADMIT_ALL, ADMIT_NONE
from engine.batching.sequence import Sequence
from tests.support.engine_loop import FakeRunner, LoopSetup


class FakeEncode:
    """An encode on the device, over when the test says so, or when it is waited for."""

    def __init__(self) -> None:
        self.is_finished = False
        self.num_waits = 0

    def is_over(self) -> bool:
        return self.is_finished

    def wait(self) -> None:
        self.is_finished = True
        self.num_waits += 1


class LateRunner(FakeRunner):
    """Starts an encode and a step, and reads the step one call later, as the GPU's runner does."""

    def __init__(self) -> None:
        super().__init__()
        self.encodes: list[FakeEncode] = []
        self.by_id: dict[int, FakeEncode] = {}
        self.started: list[Sequence] = []
        self.num_steps = 0

    def encode(self, sequences: Rows[Sequence], audio: Rows[Samples]) -> FakeEncode:
        super().encode(sequences, audio)
        encode = FakeEncode()
        self.encodes.append(encode)
        self.by_id |= {sequence.id: encode for sequence in sequences}
        return encode

    def step(self, sequences: Rows[Sequence]) -> None:
        self.num_steps += 1
        before = [s for s in self.started if s in sequences and not s.is_stopped]
        self.started = [s for s in sequences if self.by_id[s.id].is_over() and not s.is_stopped]
        if before:
            super().step(before)
        elif not self.started:
            self.encodes[-1].wait()


def make_setup() -> tuple[LoopSetup, LateRunner]:
    runner = LateRunner()
    return LoopSetup(runner=runner), runner


def test_texts_are_whole_though_each_step_is_read_by_the_next() -> None:
    setup, runner = make_setup()
    setup.loop.submit(setup.request(1))
    setup.run(3)
    assert runner.encodes[0].num_waits == 1, "with nothing else to do the encoder is waited for"
    assert not setup.results
    setup.run(4)
    result = setup.results[1]
    assert isinstance(result, Hypothesis) and result.tokens == (0, 1, 2)
    assert runner.num_steps == 5  # one for the encode, three for tokens, one that reads the last
    assert setup.is_empty


def test_windows_gather_while_the_device_encodes_and_others_decode() -> None:
    setup, runner = make_setup()
    setup.loop.submit(setup.request(1, num_tokens=12))
    setup.run(3)
    setup.loop.submit(setup.request(2))
    setup.run(1)
    setup.loop.submit(setup.request(3))
    setup.loop.submit(setup.request(4))
    num_tokens = len(setup.loop._requests[1].sequence.tokens)
    setup.run(3)
    assert len(runner.encodes) == 2 and not runner.encodes[1].is_finished
    assert len(setup.loop._requests[1].sequence.tokens) == num_tokens + 3
    assert not setup.loop._requests[2].sequence.tokens
    runner.encodes[1].is_finished = True
    setup.run(1)
    assert len(runner.encodes) == 3 and runner.by_id[3] is runner.by_id[4]
    runner.encodes[2].is_finished = True
    setup.run(20)
    assert set(setup.results) == {1, 2, 3, 4} and setup.is_empty
    assert (setup.counters.num_encodes, setup.counters.num_encoded) == (3, 4)


def test_an_encode_whose_windows_were_aborted_is_waited_for() -> None:
    setup, runner = make_setup()
    news: list[int] = []
    encoder = setup.loop._encoder
    assert isinstance(encoder, DeviceEncoder)
    encoder.open(lambda: news.append(1))
    request = setup.request(1)
    setup.loop.submit(request)
    setup.run(1)
    setup.loop.abort(request)
    setup.loop.submit(setup.request(2))
    assert encoder.admission is ADMIT_NONE
    assert not setup.loop.step()
    assert news and runner.encodes[0].num_waits == 1
    assert encoder.admission is ADMIT_ALL
    setup.run(8)
    assert set(setup.results) == {2} and setup.is_empty


@pytest.mark.timeout(60)
def test_the_loop_wakes_though_only_the_device_is_busy() -> None:
    setup, _ = make_setup()
    setup.loop.start()
    try:
        for id in range(60):
            request = setup.request(id, stream_id=id % 3)
            setup.loop.submit(request)
            if id % 2:
                setup.loop.abort(request)
        while setup.loop._requests or setup.loop._inbox:
            time.sleep(0.001)
    finally:
        setup.loop.close()
    assert setup.is_empty


@pytest.mark.parametrize("steps", range(7))
def test_an_aborted_window_frees_all(steps: int) -> None:
    setup, _ = make_setup()
    request = setup.request(1)
    setup.loop.submit(request)
    setup.run(steps)
    setup.loop.abort(request)
    setup.loop.submit(setup.request(2))
    setup.run(10)
    assert 2 in setup.results and setup.is_empty


def test_an_encode_that_cannot_be_started_costs_only_its_windows(
    caplog: pytest.LogCaptureFixture,
) -> None:
    setup, runner = make_setup()
    runner.unreadable.add(1)
    setup.loop.submit(setup.request(1))
    setup.run(2)
    assert isinstance(setup.results[1], StreamLost) and "an encode failed" in caplog.text
    setup.loop.submit(setup.request(2))
    setup.run(8)
    assert isinstance(setup.results[2], Hypothesis)
    assert setup.counters.num_failures == 1 and setup.is_empty
