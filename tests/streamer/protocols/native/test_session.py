"""A session of `/v1/stream` without a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from streamer import wire
from streamer.protocol import End, Finalize, Start, Update
from streamer.protocols.native.session import MAX_ERRORS, StreamSession
from streamer.service import Service
from streamer.transport.edge import Fault
from streamer.wire import ClientFault
from tests.support.audio import babble, pcm16
from tests.support.running_service import loaded_service
from tests.support.waiting import until

SENTENCE = pcm16(babble(2.0))


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    async with loaded_service() as found:
        yield found


@pytest.fixture
async def session(service: Service) -> AsyncIterator[StreamSession]:
    found = StreamSession(service)
    yield found
    await found.close()
    assert service.num_sessions == 0


def _start(**fields: Any) -> Start:
    return Start(vad_threshold=0.0, **fields)


def _said(session: StreamSession) -> list[dict[str, Any]]:
    return [json.loads(entry.text) for entry in session.journal.after(-1)]


def _codes(session: StreamSession) -> list[str]:
    return [message["code"] for message in _said(session) if message["type"] == "error"]


async def _wait_over(session: StreamSession) -> None:
    await until(lambda: session.is_over)


async def test_it_says_ready_text_and_done(session: StreamSession, service: Service) -> None:
    await session.begin(_start())
    await session.take(SENTENCE)
    await session.take(End())
    await _wait_over(session)
    said = _said(session)
    assert [said[0]["type"], said[-2]["text"], said[-1]["type"]] == ["ready", "w0 w1 w2 w3", "done"]
    assert session.close_code == wire.CLOSE_NORMAL
    # its place is held until its client has all of it
    assert service.num_sessions == 1
    session.finish_delivery()
    await until(lambda: service.num_sessions == 0)


async def test_who_listens_is_told_of_every_change(session: StreamSession) -> None:
    told = []
    session.on_change = lambda: told.append(session.journal.next_seq)
    await session.begin(_start())
    session.report(ClientFault("odd", "x"))
    session.fail(Fault(1011, "internal", "y"))
    assert told == [1, 2, 3, 3]


async def test_a_setting_out_of_range_begins_nothing(
    session: StreamSession, service: Service
) -> None:
    with pytest.raises(ClientFault, match="silence_ms") as raised:
        await session.begin(_start(silence_ms=1))
    assert raised.value.is_fatal and session.start is None and service.num_sessions == 0


async def test_errors_are_counted_up_to_a_bound(session: StreamSession) -> None:
    for _ in range(MAX_ERRORS + 5):
        session.report(ClientFault("odd", "x"))
    assert _codes(session) == ["odd"] * MAX_ERRORS + ["too_many_errors"]
    assert session.close_code == wire.CLOSE_PROTOCOL_ERROR


async def test_what_is_said_once_is_said_once_for_each_field(session: StreamSession) -> None:
    session.report_ignored(("a", "b"))
    session.report_ignored(("b", "a", "c"))
    assert [message["field"] for message in _said(session)] == ["a", "b", "c"]


async def test_only_the_first_end_of_a_session_counts(session: StreamSession) -> None:
    session.conclude(1000)
    session.fail(Fault(1011, "internal", "too late"))
    assert session.close_code == 1000 and _said(session) == []


async def test_updates_and_finalize_are_kept_in_order_with_the_sound(
    session: StreamSession,
) -> None:
    await session.begin(_start(endpointing="manual"))
    for item in (SENTENCE, Finalize(), Update(language="de"), SENTENCE, Finalize(), End()):
        await session.take(item)
    await _wait_over(session)
    finals = [m for m in _said(session) if m["type"] == "final" and m["text"]]
    assert [(final["text"], final["language"]) for final in finals] == [
        ("w0 w1 w2 w3", "en"),
        ("w4 w5 w6 w7", "de"),
    ]


async def test_sound_that_is_taken_counts_even_if_its_client_goes(session: StreamSession) -> None:
    await session.begin(_start(resumable=True))
    taking = asyncio.create_task(session.take(SENTENCE))
    await asyncio.sleep(0)
    taking.cancel()
    assert session.ready().received_bytes == len(SENTENCE)
    await session.expire()
    assert [m["text"] for m in _said(session) if m["type"] == "final"] == ["w0 w1 w2 w3"]


async def test_what_finds_no_room_before_its_client_goes_does_not_count(
    session: StreamSession,
) -> None:
    await session.begin(_start(resumable=True))
    stuck = asyncio.Event()
    live: Any = session._live
    feed = live.feed

    async def feed_later(data: bytes) -> None:
        await stuck.wait()
        await feed(data)

    live.feed = feed_later
    for _ in range(2):  # one is being fed, one waits
        await session.take(SENTENCE)
    for item in (SENTENCE, End()):
        taking = asyncio.create_task(session.take(item))
        await asyncio.sleep(0.01)
        assert not taking.done()
        taking.cancel()
    stuck.set()
    assert session.ready().received_bytes == 2 * len(SENTENCE)
    await session.take(End())
    await _wait_over(session)
    assert _said(session)[-1]["duration"] == 4.0 and _codes(session) == []


async def test_an_unforeseen_error_tells_the_client_nothing_of_it(
    session: StreamSession, caplog: pytest.LogCaptureFixture
) -> None:
    await session.begin(_start())

    def explode(*_arguments: object, **_fields: object) -> None:
        raise RuntimeError("secret")

    session._live.feed = explode  # type: ignore[union-attr, method-assign, assignment]
    await session.take(SENTENCE)
    await _wait_over(session)
    assert _codes(session) == ["internal"] and "secret" not in str(_said(session))
    assert "secret" in caplog.text and "Traceback" in caplog.text


async def test_only_sessions_that_asked_for_it_can_be_resumed(service: Service) -> None:
    for asked in (False, True):
        session = StreamSession(service)
        await session.begin(_start(resumable=asked))
        assert session.is_resumable is asked
        assert (session.resume_s is not None) is asked
        session.fail(Fault(1008, "invalid_request", "x"))
        assert not session.is_resumable
        await session.close()
