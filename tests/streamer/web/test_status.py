"""What operators look at says what is so."""

from __future__ import annotations

import asyncio
import json

import httpx
from prometheus_client.parser import text_string_to_metric_families
from websockets.asyncio.client import connect

from streamer.config import ServerConfig
from tests.support.engines import CountingEngine
from tests.support.running_service import running
from tests.support.waiting import LIMIT_S, until

KEY = "a-key-to-look-at-metrics"


async def test_metrics_and_status_follow_a_session() -> None:
    config = ServerConfig(port=0, calibrate=False, drain_timeout_s=1.0, max_sessions=5)
    async with (
        running(config=config) as service,
        httpx.AsyncClient(base_url=service.http) as client,
    ):
        async with connect(f"{service.ws}/v1/stream") as socket:
            await socket.send('{"type":"start"}')
            await socket.recv()
            status = (await client.get("/v1/status")).json()
            assert status["status"] == "ready" and status["model"] == "counting"
            assert status["sessions"] == {"open": 1, "limit": 5, "max": 5}
            assert status["keys"] is None
            async with asyncio.timeout(LIMIT_S):  # in tenths of a second
                while not status["uptime_s"] > 0:
                    status = (await client.get("/v1/status")).json()
        answer = await client.get("/metrics")
        assert answer.headers["content-type"].startswith("text/plain")
        families = {f.name: f for f in text_string_to_metric_families(answer.text)}
        assert families["wordwire_sessions"].samples[0].value == 1
        assert families["wordwire_session_limit"].samples[0].value == 5
        # the session closes a moment after its socket
        totals = service.service.metrics.totals
        await until(lambda: totals()["sessions_closed"] == 1)
        found = (await client.get("/v1/status")).json()["totals"]
        assert found["sessions"] == found["sessions_closed"] == 1


async def test_nothing_that_was_said_is_in_them() -> None:
    async with running(config=ServerConfig(port=0, calibrate=False, api_keys=(KEY,))) as service:
        headers = {"Authorization": f"Bearer {KEY}"}
        async with connect(f"{service.ws}/v1/stream", additional_headers=headers) as socket:
            await socket.send(json.dumps({"type": "start", "hotwords": ["s3cret"]}))
            await socket.recv()
            async with httpx.AsyncClient(base_url=service.http, headers=headers) as client:
                text = (await client.get("/metrics")).text + (await client.get("/v1/status")).text
        assert "s3cret" not in text and KEY not in text
        assert (await _status(service.http, headers))["keys"] == 1


async def _status(url: str, headers: dict[str, str]) -> dict[str, object]:
    async with httpx.AsyncClient(base_url=url, headers=headers) as client:
        found: dict[str, object] = (await client.get("/v1/status")).json()
    return found


async def test_a_service_that_loads_says_so() -> None:
    class Slow(CountingEngine):
        pass

    async with running(Slow) as service:
        assert (await _status(service.http, {}))["status"] == "ready"
        service.service.draining.set()
        assert (await _status(service.http, {}))["status"] == "draining"
