"""An engine in another process returns what a local one returns, and its death loses no caller."""

from __future__ import annotations

import asyncio
import errno
import math
import os
import signal
import time
from collections.abc import Iterator

import numpy as np
import pytest

from engine.api import EngineBusy, InvalidRequest, StreamLost, StreamOptions, Window
from engine.checkpoint.locate import ModelError
from engine.process.owner import WorkerProcess
from engine.process.pending import Limits
from engine.process.remote import RemoteEngine, start_engine
from engine.process.wire import Decoded, Recipe, Report
from tests.support.engines import EchoEngine

GERMAN = StreamOptions(language="de")


def recipe(name: str = "echo") -> Recipe:
    return Recipe("tests.support.engines", "make_echo", name)


@pytest.fixture
def engine() -> Iterator[RemoteEngine]:
    remote = start_engine(recipe())
    yield remote
    remote.close()
    assert remote.process_id is None


@pytest.fixture
def watched() -> Iterator[RemoteEngine]:
    """An engine that is soon taken for hung; a machine that stands still can bring that about."""
    remote = start_engine(recipe(), Limits(hang_s=1.5))
    yield remote
    remote.close()


def window(prompt: str = "", seconds: float = 1.0, deadline: float = math.inf) -> Window:
    audio = np.linspace(0, 1, int(16_000 * seconds), dtype=np.float32)
    return Window(start=800, audio=audio, prompt=prompt, deadline=deadline)


async def test_a_remote_engine_gives_what_a_local_one_gives(engine: RemoteEngine) -> None:
    local = EchoEngine("echo")
    assert engine.info == local.info
    async with engine.stream(GERMAN) as there, local.stream(GERMAN) as here:
        for seconds in (0.01, 1.0, 30.0):
            asked = window("names", seconds)
            assert await there.decode(asked) == await here.decode(asked)


async def test_errors_arrive_as_what_they_are(engine: RemoteEngine) -> None:
    with pytest.raises(InvalidRequest, match="got xx"):
        async with engine.stream(StreamOptions(language="xx")):
            pass
    async with engine.stream(GERMAN) as stream:
        with pytest.raises(EngineBusy, match="no room"):
            await stream.decode(window("busy"))
        with pytest.raises(RuntimeError, match="KeyError in the engine's process"):
            await stream.decode(window("bug"))
        assert (await stream.decode(window())).text.startswith(" de")


async def test_many_streams_are_served_side_by_side(engine: RemoteEngine) -> None:
    async def ask(number: int) -> str:
        async with engine.stream(GERMAN) as stream:
            return (await stream.decode(window(f"sleep 0.2 {number}"))).text

    start = time.monotonic()
    texts = await asyncio.gather(*(ask(number) for number in range(50)))
    assert all(f" {number} " in text for number, text in enumerate(texts))
    assert time.monotonic() - start < 9  # one after the other it would be 10 s


async def test_a_cancelled_decode_stops_there_and_streams_are_closed(engine: RemoteEngine) -> None:
    async with engine.stream(GERMAN) as stream:
        cancelled = asyncio.create_task(stream.decode(window("sleep 60")))
        await asyncio.sleep(0)  # it is on its way, and what is answered came after it
        assert (await stream.decode(window())).start == 800
        cancelled.cancel()
        await asyncio.gather(cancelled, return_exceptions=True)
        assert (await stream.decode(window())).start == 800
    async with asyncio.timeout(30):
        while engine.statistics() != {"streams": 0, "cancelled_total": 1}:
            await asyncio.sleep(0.05)


async def test_streams_that_are_closed_before_they_are_open_leave_nothing(
    engine: RemoteEngine, caplog: pytest.LogCaptureFixture
) -> None:
    async def open_stream() -> None:
        async with engine.stream(GERMAN):
            pass

    for _ in range(50):
        opening = asyncio.create_task(open_stream())
        await asyncio.sleep(0)
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)
    async with asyncio.timeout(30), engine.stream(GERMAN) as stream:
        await stream.decode(window())
        while engine.statistics().get("streams") != 1:  # it counts once a second
            await asyncio.sleep(0.05)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_a_killed_process_is_started_anew_and_its_streams_are_lost(
    engine: RemoteEngine,
) -> None:
    async with engine.stream(GERMAN) as stream:
        waiting = asyncio.create_task(stream.decode(window("sleep 60")))
        await asyncio.sleep(0.2)
        assert engine.process_id is not None
        os.kill(engine.process_id, signal.SIGKILL)
        with pytest.raises(StreamLost):
            await waiting
        with pytest.raises(StreamLost):
            await stream.decode(window())
        # a stream that is opened meanwhile waits for the new process
        async with engine.stream(GERMAN) as another:
            assert (await another.decode(window())).text.startswith(" de")
        with pytest.raises(StreamLost):
            await stream.decode(window())
    assert engine.num_restarts == 1 and engine.is_up


async def test_a_request_that_kills_the_process_costs_the_others_one_retry(
    engine: RemoteEngine,
) -> None:
    async with engine.stream(GERMAN) as good, engine.stream(GERMAN) as bad:
        waiting = asyncio.create_task(good.decode(window("sleep 60")))
        with pytest.raises(StreamLost):
            await bad.decode(window("die"))
        with pytest.raises(StreamLost):
            await waiting
    async with engine.stream(GERMAN) as stream:
        await stream.decode(window())


async def test_a_process_that_hangs_is_killed(watched: RemoteEngine) -> None:
    hung = watched.process_id
    async with watched.stream(GERMAN) as stream:
        start = time.monotonic()
        with pytest.raises(StreamLost):
            await stream.decode(window("hang"))
        assert 1.0 < time.monotonic() - start < 20.0  # by default it would be 30
    async with watched.stream(GERMAN) as stream:
        await stream.decode(window())
    assert watched.process_id != hung


async def test_an_owner_that_stood_still_reads_the_answers_first(watched: RemoteEngine) -> None:
    process = watched._process
    assert process is not None
    receive = process.receive

    def stand_still() -> list[Report] | None:
        process.receive = receive  # type: ignore[method-assign]
        time.sleep(2.0)
        return []

    async with watched.stream(GERMAN) as stream:
        await stream.decode(window())
        process.receive = stand_still  # type: ignore[method-assign]
        for _ in range(3):
            await stream.decode(window("sleep 0.3"))
    assert process.receive == receive, "it was called"
    assert watched.num_restarts == 0


async def test_an_idle_process_does_not_count_as_hung(watched: RemoteEngine) -> None:
    await asyncio.sleep(2.5)
    assert watched.num_restarts == 0 and watched.is_up


def test_an_engine_that_cannot_be_made_says_why() -> None:
    with pytest.raises(ValueError, match="got a broken one"):
        start_engine(recipe("broken"))


def test_an_engine_whose_error_survives_no_pickle_says_why() -> None:
    with pytest.raises(RuntimeError, match="KeywordError: 404 from the hub"):
        start_engine(recipe("keyword"))


def test_a_first_load_that_hangs_ends_with_a_reason() -> None:
    with pytest.raises(ModelError, match="not loaded within 2 s"):
        start_engine(recipe("never"), Limits(load_s=2.0))


def test_a_process_that_cannot_be_started_is_a_failed_load(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> WorkerProcess:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr("engine.process.remote.WorkerProcess", refuse)
    with pytest.raises(RuntimeError, match="too many open files"):
        start_engine(recipe())


async def test_a_restart_that_fails_is_logged_counted_and_tried_again(
    engine: RemoteEngine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    num_refused = 0

    def refuse_twice() -> WorkerProcess:
        nonlocal num_refused
        if num_refused < 2:
            num_refused += 1
            raise OSError(errno.ENOMEM, "no memory")
        return WorkerProcess()

    monkeypatch.setattr("engine.process.remote.RETRY_S", 0.01)
    monkeypatch.setattr("engine.process.remote.WorkerProcess", refuse_twice)
    async with asyncio.timeout(60), engine.stream(GERMAN) as stream:
        with pytest.raises(StreamLost):
            await stream.decode(window("die"))
    async with asyncio.timeout(60), engine.stream(GERMAN) as stream:
        await stream.decode(window())
    assert engine.num_restarts == 3 and num_refused == 2
    assert caplog.text.count("no memory") >= 2 and "Traceback" in caplog.text


async def test_a_bug_in_reading_a_report_costs_one_restart(
    engine: RemoteEngine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    take = engine._take

    def take_badly(report: Report, process: WorkerProcess) -> None:
        if isinstance(report, Decoded):
            monkeypatch.setattr(engine, "_take", take)
            raise KeyError("what only our bug can cause")
        take(report, process)

    monkeypatch.setattr(engine, "_take", take_badly)
    async with asyncio.timeout(60), engine.stream(GERMAN) as stream:
        with pytest.raises(StreamLost):
            await stream.decode(window())
    async with asyncio.timeout(60), engine.stream(GERMAN) as stream:
        await stream.decode(window())
    assert engine.num_restarts == 1 and "KeyError" in caplog.text


async def test_a_request_that_is_forgotten_ends_while_others_are_answered() -> None:
    remote = start_engine(recipe(), Limits(hang_s=60, window_s=1.5))
    try:
        async with asyncio.timeout(60), remote.stream(GERMAN) as bad, remote.stream(GERMAN) as good:
            forgotten = asyncio.create_task(bad.decode(window("forget", deadline=1.0)))
            background = asyncio.create_task(bad.decode(window("forget")))
            while not forgotten.done():
                await good.decode(window("sleep 0.1"))
            with pytest.raises(StreamLost, match="in time"):
                await forgotten
            while remote.statistics().get("cancelled_total") != 1:  # it counts once a second
                await asyncio.sleep(0.05)
            assert not background.done(), "nobody waits for it, so it may take long"
            background.cancel()
            await asyncio.gather(background, return_exceptions=True)
        assert remote.num_restarts == 0
    finally:
        remote.close()


async def test_an_engine_that_died_is_started_anew_at_once(engine: RemoteEngine) -> None:
    async with asyncio.timeout(60):
        async with engine.stream(GERMAN) as stream:
            with pytest.raises(StreamLost):
                await stream.decode(window("dead"))
        while not engine.num_restarts:
            await asyncio.sleep(0.05)
        async with engine.stream(GERMAN) as stream:
            await stream.decode(window())


async def test_what_cannot_be_carried_costs_its_request_alone(engine: RemoteEngine) -> None:
    async with asyncio.timeout(60), engine.stream(GERMAN) as stream:
        waiting = asyncio.create_task(stream.decode(window("sleep 1")))
        with pytest.raises(RuntimeError, match="TypeError in the engine's process"):
            await stream.decode(window("odd"))
        with pytest.raises(RuntimeError, match="KeyError in the engine's process"):
            async with engine.stream(StreamOptions(language="yy")):
                pass
        with pytest.raises(InvalidRequest, match="surrogate"):
            await stream.decode(window("\ud83d"))
        await waiting
    assert engine.num_restarts == 0


def test_closing_while_the_process_hangs_does_not_wait_for_it() -> None:
    remote = start_engine(recipe(), Limits(hang_s=60))

    async def hang() -> None:
        async with remote.stream(GERMAN) as stream:
            asking = asyncio.create_task(stream.decode(window("hang")))
            await asyncio.sleep(0.3)
            await asyncio.to_thread(remote.close)
            with pytest.raises(StreamLost):
                await asking

    start = time.monotonic()
    asyncio.run(hang())
    assert time.monotonic() - start < 30
