"""Sessions whose clients are away."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from streamer.config import ServerConfig
from streamer.protocol import Start
from streamer.protocols.native import parking
from streamer.protocols.native.parking import Parking
from streamer.protocols.native.session import StreamSession
from streamer.service import Service
from tests.support.audio import babble, pcm16
from tests.support.running_service import loaded_service
from tests.support.waiting import LIMIT_S, until


@contextlib.asynccontextmanager
async def serving(**changes: float) -> AsyncIterator[Service]:
    async with loaded_service(ServerConfig(**changes)) as found:  # type: ignore[arg-type]
        yield found
        async with asyncio.timeout(LIMIT_S):
            await found.drain()
        await asyncio.sleep(0.05)


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    """A service whose sessions wait for longer than a test does."""
    async with serving(resume_grace_s=600, results_keep_s=600) as found:
        yield found


async def _session(service: Service) -> StreamSession:
    session = StreamSession(service)
    await session.begin(Start(vad_threshold=0.0, resumable=True))
    await session.take(pcm16(babble(1.0)))
    return session


async def test_a_session_can_be_taken_once() -> None:
    async with serving(resume_grace_s=0.3) as service:
        lot = Parking(service)
        session = await _session(service)
        await lot.park(session)
        assert lot.find(session.id) is session and lot.num_waiting == 1
        assert await lot.take(session.id) is session
        assert await lot.take(session.id) is None and lot.num_waiting == 0
        await asyncio.sleep(0.4)
        assert not session.is_over  # it is its client's again
        await session.close()


async def test_after_the_grace_time_text_is_finished_and_kept() -> None:
    async with serving(resume_grace_s=0.1, results_keep_s=600) as service:
        lot = Parking(service)
        session = await _session(service)
        await lot.park(session)
        await until(lambda: session.is_over)
        assert await lot.take(session.id) is None and lot.find(session.id) is session
        assert any('"final"' in entry.text for entry in session.journal.after(-1))
        assert service.num_sessions == 0


async def test_finished_text_is_kept_for_a_while_only() -> None:
    async with serving(resume_grace_s=0.1, results_keep_s=0.1) as service:
        lot = Parking(service)
        session = await _session(service)
        await lot.park(session)
        await until(lambda: lot.find(session.id) is None)
        assert session.is_over


async def test_the_oldest_gives_its_place_to_another(service: Service) -> None:
    lot = Parking(service)
    first, second = await _session(service), await _session(service)
    await lot.park(first)
    await lot.park(second)
    assert await lot.evict_oldest()
    assert await lot.take(first.id) is None and lot.find(second.id) is second
    assert service.num_sessions == 1
    assert await lot.evict_oldest() and not await lot.evict_oldest()
    assert service.num_sessions == 0
    await until(lambda: first.is_over)
    # what its client said is final, and can be fetched
    assert lot.find(first.id) is first
    assert any('"final"' in entry.text for entry in first.journal.after(-1))


async def test_no_more_wait_than_there_is_room_for(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parking, "MAX_PARKED", 2)
    lot = Parking(service)
    for _ in range(4):
        await lot.park(await _session(service))
    assert lot.num_waiting == 2 and service.num_sessions == 2


async def test_a_stop_waits_for_nobody_who_is_away(service: Service) -> None:
    lot = Parking(service)
    await lot.park(await _session(service))
    async with asyncio.timeout(LIMIT_S):  # far below the time that it is kept for
        await service.drain()
    assert service.num_sessions == 0
