"""Names of hosts that are refused without keys; what a route raises, and requests broken off."""

from __future__ import annotations

import asyncio
import logging

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Origin

from streamer.config import ServerConfig
from streamer.protocols.whisperlive import route as whisperlive
from streamer.transport import access_gate
from tests.support.engines import CountingEngine
from tests.support.gate import KEY, get, handshake
from tests.support.running_service import Running, running
from tests.support.waiting import until


async def test_a_page_that_has_its_own_name_resolve_to_a_service_without_keys_is_refused(
    guarded: Running, open_service: Running
) -> None:
    rebound = {"Host": f"evil.example:{open_service.port}"}
    for path in ("/", "/v1/info", "/metrics"):
        answer = await get(open_service, path, headers=rebound)
        assert answer.status_code == 403
        assert answer.json()["error"]["code"] == "forbidden_host"
    assert (await get(open_service, "/healthz", headers=rebound)).status_code == 200
    headers = {**rebound, "X-API-Key": KEY}
    assert (await get(guarded, "/v1/info", headers=headers)).status_code == 200
    for service, status in ((open_service, 403), (guarded, 101)):
        # to the browser, the service is of the page's own origin
        found = await handshake(
            service,
            "/v1/stream",
            name="evil.example",
            origin=Origin(f"http://evil.example:{service.port}"),
            additional_headers={"X-API-Key": KEY},
        )
        assert found == status


async def test_a_service_without_keys_is_reached_by_the_names_that_are_listed() -> None:
    config = ServerConfig(
        port=0, allowed_hosts=("stt.example",), allowed_origins=("https://app.example",)
    )
    async with running(CountingEngine, config) as service:
        for host, status in {
            "stt.example": 200,
            "STT.example:8000": 200,
            "app.example": 200,  # that page may use the service anyway
            "localhost:1": 200,
            "stt.example.evil.example": 403,
        }.items():
            answer = await get(service, "/v1/info", headers={"Host": host})
            assert answer.status_code == status, host


async def test_what_a_route_raises_is_an_answer_that_its_page_can_read(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a bug, with its secrets")

    page = "https://app.example"
    config = ServerConfig(port=0, allowed_origins=(page,), drain_timeout_s=2.0)
    monkeypatch.setattr(whisperlive, "accept", fail)
    async with running(CountingEngine, config) as service:
        monkeypatch.setattr(service.service.metrics, "render", lambda: 1 / 0)
        answer = await get(service, "/metrics", headers={"Origin": page})
        assert answer.status_code == 500 and answer.json()["error"]["code"] == "internal"
        assert answer.headers["access-control-allow-origin"] == page
        with pytest.raises(InvalidStatus) as caught:
            await connect(f"{service.ws}/v1/whisperlive", origin=Origin(page))
        response = caught.value.response
        assert response.status_code == 500 and b"secrets" not in response.body
        assert response.headers["access-control-allow-origin"] == page
    failures = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.name for record in failures if record.exc_info] == [access_gate.__name__] * 2


@pytest.mark.parametrize(
    "path", ["/v1/realtime/client_secrets", "/v1/audio/transcriptions", "/v1/listen"]
)
async def test_a_request_that_is_broken_off_is_no_error(
    open_service: Running, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    caplog.set_level(logging.DEBUG)
    reader, writer = await asyncio.open_connection(open_service.host, open_service.port)
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n"
    head += "Content-Type: multipart/form-data; boundary=x\r\n\r\n--x\r\n"
    writer.write(head.encode())
    await writer.drain()
    await asyncio.sleep(0.2)
    writer.close()
    await until(lambda: any("the client left" in record.message for record in caplog.records))
    await asyncio.sleep(0.05)
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING or r.exc_info]
