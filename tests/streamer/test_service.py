from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from engine.api import EngineBusy, EngineError, InvalidRequest, StreamOptions
from streamer.audio.pcm import AudioFormat
from streamer.config import ServerConfig
from streamer.service import Service
from streamer.transcription.settings import SessionSettings
from tests.support.engines import CountingEngine, Pace
from tests.support.running_service import loaded_service
from tests.support.waiting import LIMIT_S


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    async with loaded_service(ServerConfig(max_sessions=2)) as found:
        yield found


async def test_the_engine_is_warm_before_the_service_is_ready() -> None:
    engines: list[CountingEngine] = []

    def load() -> CountingEngine:
        engines.append(CountingEngine())
        return engines[0]

    service = Service(ServerConfig(), load)
    async with service.run():
        assert service.refusal() is not None and service.info is None
        await service.wait_loaded()
        assert engines[0].options  # it has decoded
        assert service.refusal() is None and service.info is not None


async def test_an_engine_that_does_not_load_leaves_its_reason() -> None:
    def load() -> CountingEngine:
        raise ValueError("no such model")

    service = Service(ServerConfig(), load)
    async with service.run():
        await service.wait_loaded()
        assert isinstance(service.failure, ValueError) and not service.is_loaded
        with pytest.raises(EngineBusy):
            async with service.session(AudioFormat(), SessionSettings()):
                pass


async def test_an_engine_that_is_not_ready_in_time_leaves_its_reason() -> None:
    never = threading.Event()

    def load() -> CountingEngine:
        never.wait(4 * LIMIT_S)
        return CountingEngine()

    for slow in (load, lambda: CountingEngine(Pace(cost_s=3600.0))):
        service = Service(ServerConfig(engine_load_timeout_s=0.2), slow)
        async with asyncio.timeout(LIMIT_S), service.run():
            await service.wait_loaded()
            assert isinstance(service.failure, EngineError) and not service.is_loaded
            assert "within 0.2 s" in str(service.failure)
    never.set()


async def test_a_stop_does_not_wait_for_the_loading() -> None:
    never = threading.Event()

    def load() -> CountingEngine:
        never.wait(4 * LIMIT_S)
        return CountingEngine()

    service = Service(ServerConfig(), load)
    async with asyncio.timeout(LIMIT_S):
        async with service.run():
            await asyncio.sleep(0.05)
    never.set()


async def test_places_are_counted_and_given_back(service: Service) -> None:
    async with service.session(AudioFormat(), SessionSettings()):
        async with service.session(AudioFormat(), SessionSettings()):
            refusal = service.refusal()
            assert refusal is not None and refusal.code == "busy"
            assert refusal.retry_after_s is not None
            with pytest.raises(EngineBusy, match="2 sessions"):
                async with service.session(AudioFormat(), SessionSettings()):
                    pass
        assert service.num_sessions == 1 and service.refusal() is None
    assert service.num_sessions == 0


async def test_a_session_that_does_not_open_gives_its_place_back(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_self: object, _options: StreamOptions) -> None:
        raise InvalidRequest("unknown language")

    monkeypatch.setattr(CountingEngine, "stream", refuse)
    with pytest.raises(InvalidRequest):
        async with service.session(AudioFormat(), SessionSettings(language="xx")):
            pass
    assert service.num_sessions == 0


async def test_draining_refuses_and_waits_for_the_sessions(service: Service) -> None:
    async with service.session(AudioFormat(), SessionSettings()) as live:
        draining = asyncio.create_task(service.drain())
        await asyncio.sleep(0.05)
        refusal = service.refusal()
        assert refusal is not None and refusal.code == "draining" and not draining.done()
        # the service has ended its audio; its events end by themselves
        async with asyncio.timeout(LIMIT_S):
            assert [event async for event in live.events()] == []
    async with asyncio.timeout(LIMIT_S):
        await draining
