from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from streamer.protocols.twilio.call import MAX_LOGGED_MESSAGES, CallLog, CallLogs
from streamer.protocols.twilio.messages import Start
from streamer.transcription import events
from tests.support.waiting import LIMIT_S, until

S = 16_000


def start(call: str = "CA1", stream: str = "MZ1") -> Start:
    return Start(call, stream, ("inbound", "outbound"), "mulaw", 8000, {})


def final(text: str, segment: int = 0, channel: int = 0) -> events.Final:
    return events.Final(channel, segment, text, 0, S, "en", 1.0, (), -0.1, 0.0, True, None, lag=0)


def partial(text: str, segment: int = 0, channel: int = 0) -> events.Partial:
    return events.Partial(channel, segment, text, "", 0, S, "en", 0)


async def collect(log: CallLog, after: int = 0, *, with_partials: bool = True) -> list[Any]:
    return [json.loads(text) async for text in log.follow(after, with_partials=with_partials)]


def read_along(log: CallLog, *, with_partials: bool = True) -> tuple[asyncio.Task[None], list[Any]]:
    """Read a log beside the test; return the reader and what it has read so far."""
    received: list[Any] = []

    async def read() -> None:
        async for text in log.follow(0, with_partials=with_partials):
            received.append(json.loads(text))

    return asyncio.create_task(read()), received


def shown(messages: list[Any]) -> list[Any]:
    return [(m["type"], m.get("track"), m.get("text", m.get("settled"))) for m in messages]


async def test_a_late_reader_gets_all_finals_then_the_end() -> None:
    calls = CallLogs(60, 10)
    with calls.stream(start()) as log:
        log.publish(partial(" hel"), start())
        log.publish(final(" hello"), start())
        log.publish(final(" hi", channel=1), start())
    assert shown(await collect(log)) == [
        ("stream_started", None, None),
        ("final", "inbound", " hello"),
        ("final", "outbound", " hi"),
    ]
    assert json.loads(log.describe())["state"] == "ended"


async def test_a_reader_before_the_call_waits_for_it() -> None:
    calls = CallLogs(60, 10)
    with calls.reader("CA1") as log:
        assert log is not None
        assert log.state == "waiting"
        reading, received = read_along(log)
        await asyncio.sleep(0)
        with calls.stream(start()) as same:
            assert same is log
            log.publish(partial(" one"), start())
            await until(lambda: len(received) == 2)
            log.publish(partial(" one two"), start())
            await until(lambda: len(received) == 3)
            log.publish(final(" one two"), start())
        await asyncio.wait_for(reading, LIMIT_S)
    assert shown(received) == [
        ("stream_started", None, None),
        ("partial", "inbound", " one"),
        ("partial", "inbound", " one two"),
        ("final", "inbound", " one two"),
    ]


async def test_a_partial_never_follows_its_final() -> None:
    calls = CallLogs(60, 10)
    with calls.stream(start()) as log:
        log.publish(partial(" one"), start())
        log.publish(final(" one"), start())
        log.publish(partial(" other", channel=1), start())
        reading, received = read_along(log)
        await until(lambda: len(received) == 3)
    await reading
    assert shown(received)[1:] == [
        ("final", "inbound", " one"),
        ("partial", "outbound", " other"),
    ]


async def test_reading_goes_on_after_a_sequence_number() -> None:
    calls = CallLogs(60, 10)
    with calls.stream(start()) as log:
        for number in range(5):
            log.publish(final(f" {number}", number), start())
    received = await collect(log, after=4)
    assert [m["seq"] for m in received] == [4, 5]
    assert await collect(log, after=10**9) == []


async def test_the_log_of_an_endless_call_is_bounded() -> None:
    log = CallLog("CA1")
    for number in range(MAX_LOGGED_MESSAGES + 10):
        log.append("final", "MZ1", {"text": str(number)})
    log.is_known = True
    received = await collect(log)
    assert len(received) == MAX_LOGGED_MESSAGES
    assert received[0]["seq"] == 10
    assert json.loads(log.describe())["first"] == 10


async def test_text_withheld_is_not_published_but_ends_its_partial() -> None:
    calls = CallLogs(60, 10)
    with calls.stream(start()) as log:
        log.publish(partial(" um"), start())
        assert log.publish(final(""), start()) is None
        reading, received = read_along(log)
        await until(lambda: received)
    await reading
    assert shown(received) == [("stream_started", None, None)]


async def test_a_call_is_forgotten_after_the_grace_time() -> None:
    calls = CallLogs(0.05, 10)
    with calls.stream(start()):
        pass
    with calls.reader("CA1") as log:
        assert log is not None
        assert log.state == "ended"
    await asyncio.sleep(0.15)
    with calls.reader("CA1") as log:
        assert log is not None
        assert log.state == "waiting"


async def test_a_second_stream_of_a_call_goes_on_in_its_log() -> None:
    calls = CallLogs(0.2, 10)
    with calls.stream(start()):
        pass
    with calls.stream(start(stream="MZ2")) as log:
        await asyncio.sleep(0.3)
        assert log.state == "live", "the grace time of the first stream does not end the second"
    assert [m["stream"] for m in await collect(log)] == ["MZ1", "MZ2"]


async def test_only_so_many_calls_are_kept_and_running_ones_stay() -> None:
    calls = CallLogs(60, 2)
    with calls.stream(start("A")) as running:
        with calls.stream(start("B")):
            pass
        with calls.stream(start("C")):
            pass
        with calls.reader("B") as log:
            assert log is not None
            assert log.state == "waiting", "B made room for C"
        with calls.reader("A") as log:
            assert log is running
    with calls.stream(start("D")), calls.stream(start("E")), calls.reader("F") as log:
        assert log is None, "no more readers of calls to come than there is room for"


@pytest.mark.parametrize("with_partials", [True, False])
async def test_partials_are_left_out_on_request(with_partials: bool) -> None:
    calls = CallLogs(60, 10)
    with calls.stream(start()) as log:
        log.publish(partial(" one"), start())
        reading, received = read_along(log, with_partials=with_partials)
        await until(lambda: len(received) == 1 + with_partials)
    await reading
    kinds = [m["type"] for m in received]
    assert ("partial" in kinds) is with_partials
