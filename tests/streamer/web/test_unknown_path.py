"""A wrong path is 404 with the right one, a wrong method 405, whatever the protocol."""

from __future__ import annotations

import json

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.support.running_service import Running

TRANSCRIPTIONS = "/v1/audio/transcriptions"


async def ask(service: Running, method: str, path: str) -> httpx.Response:
    async with httpx.AsyncClient(base_url=service.http) as client:
        return await client.request(method, path)


async def refused(service: Running, path: str) -> tuple[int, dict[str, str]]:
    with pytest.raises(InvalidStatus) as caught:
        await connect(service.ws + path)
    response = caught.value.response
    return response.status_code, json.loads(response.body)["error"]


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/v1/v1/audio/transcriptions", TRANSCRIPTIONS),
        ("/audio/transcriptions", TRANSCRIPTIONS),
        ("/v1/audio/transcriptions/", TRANSCRIPTIONS),
        ("//v1//audio/transcriptions", TRANSCRIPTIONS),
        ("/api/v1/audio/transcriptions", TRANSCRIPTIONS),
        ("/V1/Audio/Transcriptions", TRANSCRIPTIONS),
        ("/v1/audio/transcription", TRANSCRIPTIONS),
        ("/v1/audio/transcriptions/stream", None),
        ("/listen", "/v1/listen"),
        ("/v1/listen/", "/v1/listen"),
        ("/v1/model", "/v1/models"),
        ("/v1/stream/", "/v1/stream (over WebSocket)"),
        ("/nothing/of/the/kind", None),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_wrong_path_is_told_the_right_one(
    service: Running, method: str, path: str, meant: str | None
) -> None:
    answer = await ask(service, method, path)
    assert answer.status_code == 404
    error = answer.json()["error"]
    assert (error["code"], error["type"]) == ("unknown_path", "invalid_request_error")
    assert f"expected {meant or 'one of /'}" in error["message"] or meant is None
    assert answer.json()["err_code"] == "UNKNOWN_PATH"


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/v1/stream/", "/v1/stream"),
        ("/stream", "/v1/stream"),
        ("/v1/v1/realtime?intent=transcription", "/v1/realtime"),
        ("/v1/calls/CA1/", "/v1/calls/CA1"),
        ("/v1/streams", "/v1/stream"),
        ("/ws", "one of /v1/calls"),
    ],
)
async def test_a_socket_at_a_wrong_path_is_told_the_right_one(
    service: Running, path: str, meant: str
) -> None:
    status, error = await refused(service, path)
    assert status == 404 and error["code"] == "unknown_path"
    assert f"expected {meant}" in error["message"]


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", TRANSCRIPTIONS, "POST"),
        ("GET", "/v1/listen", "POST"),
        ("GET", "/v1/realtime/client_secrets", "POST"),
        ("DELETE", "/v1/models/base", "GET, HEAD"),
        ("POST", "/v1/stream", "GET"),
        ("POST", "/metrics", "GET, HEAD"),
    ],
)
async def test_a_wrong_method_is_told_the_right_one(
    service: Running, method: str, path: str, allowed: str
) -> None:
    answer = await ask(service, method, path)
    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
    assert answer.json()["error"]["code"] == "method_not_allowed"


async def test_a_socket_where_a_request_belongs_and_the_reverse(service: Running) -> None:
    status, error = await refused(service, TRANSCRIPTIONS)
    assert (status, error["code"]) == (405, "method_not_allowed")
    answer = await ask(service, "GET", "/v1/stream")
    assert answer.status_code == 426 and answer.headers["upgrade"] == "websocket"
    assert answer.json()["error"]["code"] == "upgrade_required"


async def test_the_page_and_its_files_are_still_served(service: Running) -> None:
    for path in ("/", "/index.html"):
        answer = await ask(service, "GET", path)
        assert answer.status_code == 200 and "text/html" in answer.headers["content-type"]
    assert (await ask(service, "POST", "/")).status_code == 405
    for path in ("/%2e%2e/config.py", "/nothing.js"):
        assert (await ask(service, "GET", path)).status_code == 404
