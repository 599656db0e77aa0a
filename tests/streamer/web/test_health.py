"""What supervisors see from the first moment to the last."""

from __future__ import annotations

import asyncio
import threading

import httpx
from starlette.testclient import TestClient

from streamer.app import create_app
from streamer.audio.pcm import AudioFormat
from streamer.config import ServerConfig
from streamer.service import Service
from streamer.transcription.settings import SessionSettings
from tests.support.engines import CountingEngine


async def test_probes_tell_loading_ready_full_and_draining_apart() -> None:
    may_load = threading.Event()

    def load() -> CountingEngine:
        may_load.wait(10)
        return CountingEngine()

    app = create_app(load, ServerConfig(max_sessions=1))
    service: Service = app.state.service
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:

        async def ask() -> tuple[int, int, str]:
            health, ready = await client.get("/healthz"), await client.get("/readyz")
            info = await client.get("/v1/info")
            return health.status_code, ready.status_code, info.json()["status"]

        async with service.run():
            assert await ask() == (200, 503, "loading")
            assert "retry-after" in (await client.get("/readyz")).headers
            may_load.set()
            await service.wait_loaded()
            assert await ask() == (200, 200, "ready")
            info = (await client.get("/v1/info")).json()
            assert (info["model"], info["languages"]) == ("counting", ["en", "de", "fr"])
            async with service.session(AudioFormat(), SessionSettings()):
                # a full service works; it must not be restarted
                assert await ask() == (200, 200, "busy")
            draining = asyncio.create_task(service.drain())
            await asyncio.sleep(0)
            assert await ask() == (200, 503, "draining")
            await draining


def test_probes_answer_without_a_lifespan() -> None:
    client = TestClient(create_app(CountingEngine, ServerConfig()))
    assert client.get("/healthz").json() == {"status": "ok"}
