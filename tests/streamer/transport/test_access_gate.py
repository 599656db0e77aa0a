"""Nobody passes without a key, wherever he knocks; nor from a foreign page."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import re
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from starlette.routing import Mount, Route, WebSocketRoute
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Origin, Subprotocol

from streamer.access import key_file
from streamer.access.keys import digest_of
from streamer.app import create_app
from streamer.config import ServerConfig
from streamer.transport.access_gate import OPEN_PATHS
from tests.support.engines import CountingEngine
from tests.support.gate import KEY, OTHER, get, handshake
from tests.support.running_service import Running, running
from tests.support.waiting import until


def paths() -> Iterator[tuple[str, str, str]]:
    """Enumerate every route of the application: kind, method, and a path that reaches it."""
    app = create_app(CountingEngine, ServerConfig(port=0))
    for route in app.routes:
        if isinstance(route, WebSocketRoute):
            yield "websocket", "GET", _filled(route.path)
        elif isinstance(route, Route):
            for method in sorted(route.methods or ()):
                yield "http", method, _filled(route.path)
        else:
            assert isinstance(route, Mount), route
            for path in ("/", "/index.html", "/no-such-file"):
                yield "http", "GET", route.path + path


def _filled(path: str) -> str:
    return re.sub(r"\{[^}]*\}", "some-id", path)


async def test_every_route_refuses_without_a_key(guarded: Running) -> None:
    tried = 0
    async with httpx.AsyncClient(base_url=guarded.http) as client:
        for kind, method, path in paths():
            for headers in ({}, {"Authorization": "Bearer not-the-right-key"}):
                if kind == "websocket":
                    status = await handshake(guarded, path, additional_headers=headers)
                else:
                    status = (await client.request(method, path, headers=headers)).status_code
                if path in OPEN_PATHS:
                    assert status == 200, path
                else:
                    assert status == 401, (kind, method, path, status)
                tried += 1
    assert tried > 20


async def test_every_route_lets_a_key_in(guarded: Running) -> None:
    headers = {"Authorization": f"Bearer {KEY}"}
    async with httpx.AsyncClient(base_url=guarded.http, headers=headers) as client:
        for kind, method, path in paths():
            if kind == "websocket":
                status = await handshake(guarded, path, additional_headers=headers)
            else:
                status = (await client.request(method, path)).status_code
            assert status not in (401, 403), (kind, method, path, status)


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": f"Bearer {KEY}"},
        {"Authorization": f"Token {KEY}"},
        {"X-API-Key": KEY},
        {"Authorization": "Basic " + base64.b64encode(f"me:{KEY}".encode()).decode()},
    ],
)
async def test_a_key_in_a_header_lets_in(guarded: Running, headers: dict[str, str]) -> None:
    assert await handshake(guarded, "/v1/stream", additional_headers=headers) == 101
    assert (await get(guarded, "/v1/info", headers=headers)).status_code == 200


@pytest.mark.parametrize("name", ["key", "token"])
async def test_a_key_in_the_query_lets_in(guarded: Running, name: str) -> None:
    assert await handshake(guarded, f"/v1/stream?{name}={KEY}&language=en") == 101
    assert (await get(guarded, "/v1/info", params={name: KEY})).status_code == 200


async def test_a_key_as_subprotocol_lets_in_and_its_scheme_is_chosen(guarded: Running) -> None:
    offered = [Subprotocol("token"), Subprotocol(KEY)]
    async with connect(f"{guarded.ws}/v1/stream", subprotocols=offered) as socket:
        assert socket.subprotocol == "token"
    wrong = [Subprotocol("token"), Subprotocol(OTHER)]
    assert await handshake(guarded, "/v1/stream", subprotocols=wrong) == 401


async def test_a_refused_handshake_says_why_in_json(guarded: Running) -> None:
    with pytest.raises(InvalidStatus) as caught:
        await connect(f"{guarded.ws}/v1/stream")
    body = json.loads(caught.value.response.body)
    assert body["error"]["code"] == "invalid_api_key"
    assert body["err_code"] == "INVALID_AUTH"
    assert guarded.service.num_sessions == 0


async def test_a_browser_token_lets_in_until_it_expires(guarded: Running) -> None:
    access = guarded.service.access
    key = access.ring.find(KEY)
    assert key is not None
    fresh = access.signer.mint(key, 60, time.time()).value
    stale = access.signer.mint(key, 60, time.time() - 61).value
    assert await handshake(guarded, f"/v1/stream?token={fresh}") == 101
    assert await handshake(guarded, f"/v1/stream?token={stale}") == 401
    headers = {"Authorization": f"Bearer {fresh}"}
    assert (await get(guarded, "/v1/info", headers=headers)).status_code == 200


async def test_a_page_with_a_key_gets_a_cookie_that_lets_its_files_and_sockets_in(
    guarded: Running,
) -> None:
    asked = await get(guarded, "/", headers={"Accept": "text/html"})
    assert asked.status_code == 401
    assert asked.headers["www-authenticate"].startswith("Basic")
    async with httpx.AsyncClient(base_url=guarded.http) as browser:
        await browser.get("/", params={"key": KEY}, headers={"Accept": "text/html"})
        assert (await browser.get("/v1/info")).status_code == 200
        cookie = browser.cookies.get("wordwire")
    assert cookie is not None and KEY not in cookie
    headers = {"Cookie": f"wordwire={cookie}"}
    assert await handshake(guarded, "/v1/stream", additional_headers=headers) == 101


@pytest.mark.parametrize(
    ("page", "status"),
    [
        ("https://evil.example", 403),
        ("null", 403),
        ("http://127.0.0.1:1", 403),
        ("same", 101),
        (None, 101),
    ],
)
async def test_a_foreign_page_is_refused_with_and_without_a_key(
    guarded: Running, open_service: Running, page: str | None, status: int
) -> None:
    for service, headers in ((open_service, {}), (guarded, {"X-API-Key": KEY})):
        origin = service.http if page == "same" else page
        found = await handshake(
            service,
            "/v1/stream",
            origin=None if origin is None else Origin(origin),
            additional_headers=headers,
        )
        assert found == status
        if origin is not None:
            answer = await get(service, "/v1/info", headers={**headers, "Origin": origin})
            assert answer.status_code == (200 if status == 101 else 403)


async def test_a_listed_page_may_ask_first_and_read_the_answer() -> None:
    config = ServerConfig(port=0, api_keys=(KEY,), allowed_origins=("https://app.example",))
    async with running(CountingEngine, config) as service:
        headers = {
            "Origin": "https://app.example",
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization",
        }
        async with httpx.AsyncClient(base_url=service.http) as client:
            asked = await client.options("/v1/info", headers=headers)
            headers["Origin"] = "https://evil.example"
            foreign = await client.options("/v1/info", headers=headers)
        assert foreign.status_code == 403
        assert asked.status_code == 204
        assert asked.headers["access-control-allow-headers"] == "authorization"
        sent = {"Origin": "https://app.example", "Authorization": f"Bearer {KEY}"}
        answer = await get(service, "/v1/info", headers=sent)
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == "https://app.example"


async def test_an_address_that_guesses_has_to_wait_and_a_key_of_it_passes() -> None:
    config = ServerConfig(port=0, api_keys=(KEY,), max_failed_attempts=3)
    async with running(CountingEngine, config) as service:
        for path in ("/v1/info", "/v1/nothing"):
            answers = [
                await get(service, path, headers={"X-API-Key": f"guess-{i}"}) for i in range(6)
            ]
            assert answers[-1].status_code == 429 and int(answers[-1].headers["retry-after"]) >= 1
            # its neighbours behind the same proxy or NAT are not locked out
            assert (await get(service, "/v1/info", headers={"X-API-Key": KEY})).status_code == 200
            assert await handshake(service, f"/v1/stream?key={KEY}") == 101
            # nor is a browser that has still to be asked for its key
            asked = await get(service, "/", headers={"Accept": "text/html"})
            assert asked.status_code == 401 and asked.headers["www-authenticate"]
        assert await handshake(service, f"/v1/stream?key={OTHER}") == 429


async def test_the_first_guesses_are_refused_as_guesses() -> None:
    config = ServerConfig(port=0, api_keys=(KEY,), max_failed_attempts=3)
    async with running(CountingEngine, config) as service:
        statuses = [
            (await get(service, "/v1/info", headers={"X-API-Key": f"guess-{i}"})).status_code
            for i in range(6)
        ]
        assert statuses[:3] == [401, 401, 401] and statuses[-1] == 429


async def test_a_revoked_key_loses_its_open_sockets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_file, "POLL_S", 0.05)
    path = tmp_path / "keys.toml"
    path.write_text(f'[one]\nkey = "{KEY}"\n[two]\nsha256 = "{digest_of(OTHER).hex()}"\n')
    config = ServerConfig(port=0, api_key_file=str(path), drain_timeout_s=2.0)
    async with running(CountingEngine, config) as service:
        # none of them sends anything: some only listen, and may for hours
        paths = "calls/CA1 stream?language=en listen realtime whisperlive twilio".split()
        sockets = [
            await connect(f"{service.ws}/v1/{path}", additional_headers={"X-API-Key": KEY})
            for path in paths
        ]
        two = await connect(f"{service.ws}/v1/stream?key={OTHER}")
        path.write_text(f'[two]\nsha256 = "{digest_of(OTHER).hex()}"\n')
        for socket in sockets:
            with pytest.raises(ConnectionClosed):
                while True:
                    await asyncio.wait_for(socket.recv(), 30)
            assert (socket.close_code, socket.close_reason) == (1008, "key revoked")
        await two.send(b"\0\0")
        assert json.loads(await two.recv())["type"] == "ready"
        assert await handshake(service, f"/v1/stream?key={KEY}") == 401
        counted = service.service.metrics.render().decode()
        assert 'wordwire_closes_total{code="1008",side="server"} 6.0' in counted
        path.write_text("this is no key file")
        service.service.keys.reload_if_changed()
        assert len(service.service.access.ring) == 1
        await two.close()
        await until(lambda: service.service.num_sessions == 0)


async def test_a_key_has_its_own_limits(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(
        f'[few]\nkey = "{KEY}"\nmax_sessions = 1\n[short]\nkey = "{OTHER}"\naudio_s_per_minute = 2'
    )
    config = ServerConfig(port=0, api_key_file=str(path), drain_timeout_s=2.0)
    async with running(CountingEngine, config) as service:
        async with connect(f"{service.ws}/v1/stream?key={KEY}") as first:
            await first.send(b"\0\0")
            await first.recv()
            assert await handshake(service, f"/v1/stream?key={KEY}") == 429
            assert await handshake(service, f"/v1/stream?key={OTHER}") == 101
        async with connect(f"{service.ws}/v1/stream?key={OTHER}") as greedy:
            await greedy.send(bytes(32_000 * 10))
            assert json.loads(await greedy.recv())["type"] == "ready"
            while await handshake(service, f"/v1/stream?key={OTHER}") != 429:
                pass


async def test_the_number_of_open_sockets_is_capped() -> None:
    config = ServerConfig(port=0, max_connections=3, drain_timeout_s=2.0)
    async with running(CountingEngine, config) as service:
        sockets = [await connect(f"{service.ws}/v1/stream") for _ in range(3)]
        assert await handshake(service, "/v1/stream") == 503
        await sockets[0].close()
        while await handshake(service, "/v1/stream") != 101:
            pass
        for socket in sockets:
            await socket.close()


async def test_no_key_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    for name in ("httpx", "httpcore", "websockets"):  # the clients' own
        logging.getLogger(name).setLevel(logging.CRITICAL)
    config = ServerConfig(port=0, api_keys=(KEY,), drain_timeout_s=2.0)
    async with running(CountingEngine, config) as service:
        logging.getLogger("uvicorn.error").setLevel(logging.INFO)
        await handshake(service, f"/v1/stream?key={KEY}")
        await handshake(service, f"/v1/stream?key={KEY}x")
        await handshake(service, "/v1/stream", additional_headers={"X-API-Key": KEY})
        await get(service, f"/v1/info?token={KEY}")
        await get(service, f"/v1/nothing?token={KEY}")
        for path in ("/v1/twilio/", "/v1/Twilio//", "/twilio/", "/v1/v1/twilio/"):
            for key in (KEY, KEY + "x"):
                answer = await get(service, path + key)
                assert KEY not in answer.text
                await handshake(service, path + key)
    own = [r for r in caplog.records if not r.name.startswith(("http", "websockets"))]
    assert own and not any(KEY in record.getMessage() for record in own)
    assert KEY not in repr(config)
