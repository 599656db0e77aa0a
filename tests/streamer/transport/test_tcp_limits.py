"""A connection is bounded before it is a request."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import subprocess
from pathlib import Path

import pytest
from websockets.asyncio.client import connect

from streamer.config import ServerConfig
from streamer.transport.tcp_limits import GuardedSocket
from tests.support.running_service import running

HEAD = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"


def config(**changes: object) -> ServerConfig:
    return ServerConfig(port=0, calibrate=False, drain_timeout_s=1.0, **changes)  # type: ignore[arg-type]


async def _drops(reader: asyncio.StreamReader) -> bool:
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(30):
            return await reader.read() == b""
    return True


@pytest.mark.parametrize("sent", [b"", b"G", HEAD, HEAD + b"X-Slow: 1"])
async def test_a_head_that_does_not_end_is_not_waited_for(sent: bytes) -> None:
    async with running(config=config(request_timeout_s=0.3)) as service:
        reader, writer = await asyncio.open_connection(service.host, service.port)
        writer.write(sent)
        assert await _drops(reader)
        writer.close()


async def test_a_letter_now_and_then_does_not_extend_the_time() -> None:
    async with running(config=config(request_timeout_s=0.5)) as service:
        reader, writer = await asyncio.open_connection(service.host, service.port)
        loop = asyncio.get_running_loop()
        start = loop.time()
        with contextlib.suppress(ConnectionError):
            while not reader.at_eof() and loop.time() - start < 30:
                writer.write(b"G")
                await writer.drain()
                await asyncio.sleep(0.1)
        assert loop.time() - start < 30
        writer.close()


async def test_a_second_request_on_a_connection_has_its_own_time() -> None:
    async with running(config=config(request_timeout_s=1.0)) as service:
        reader, writer = await asyncio.open_connection(service.host, service.port)
        for _ in range(3):
            writer.write(HEAD + b"\r\n")
            assert b"200" in await reader.readuntil(b'"ok"}')
            await asyncio.sleep(0.4)
        writer.write(HEAD)
        assert await _drops(reader)
        writer.close()


async def test_a_socket_outlives_the_time_for_its_head() -> None:
    async with running(config=config(request_timeout_s=0.2)) as service:
        async with connect(f"{service.ws}/v1/stream?language=en") as socket:
            await socket.recv()
            await asyncio.sleep(0.6)
            await socket.send('{"type":"end"}')
            assert "done" in str(await socket.recv())


async def test_connections_beyond_the_limit_are_answered_and_closed() -> None:
    async with running(config=config(max_connections=3)) as service:
        held = [await asyncio.open_connection(service.host, service.port) for _ in range(3)]
        await asyncio.sleep(0.05)
        reader, writer = await asyncio.open_connection(service.host, service.port)
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 503") and b"Retry-After" in answer
        for _, each in (*held, (reader, writer)):
            each.close()


HANDSHAKE = (
    b"%s /v1/stream HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


@pytest.mark.parametrize(
    "head",
    [
        HANDSHAKE % b"GET" + b"Cookie: " + b"c" * 9000 + b"\r\n",
        HANDSHAKE % b"GET" + b"".join(b"X-%d: 1\r\n" % i for i in range(130)),
        HANDSHAKE % b"GET"
        + b"Sec-WebSocket-Protocol: "
        + b",".join(b"chat%d" % i for i in range(2000))
        + b"\r\n",
        HANDSHAKE % b"GET" + b"Content-Length: 5\r\n",
        HANDSHAKE % b"GET" + b"Transfer-Encoding: chunked\r\n",
        HANDSHAKE % b"POST",
        HANDSHAKE % b"POST" + b"Content-Length: 5\r\n",
        (HANDSHAKE % b"GET").replace(b"-Key: ", b"-Key: x"),
        (HANDSHAKE % b"GET").replace(b"/v1/stream", b"/" + b"p" * 9000),
    ],
    ids="cookie headers subprotocols length chunked method method-and-length key path".split(),
)
async def test_a_handshake_that_cannot_be_read_is_answered_closed_and_counted(head: bytes) -> None:
    async with running(config=config()) as service:
        reader, writer = await asyncio.open_connection(service.host, service.port)
        writer.write(head + b"\r\n")
        async with asyncio.timeout(30):
            answer = await reader.read()
        status = answer[:12]
        assert status in (b"HTTP/1.1 400", b"HTTP/1.1 431", b"HTTP/1.1 405"), answer
        reason = f'wordwire_refusals_total{{reason="{status[-3:].decode()}"}} 1.0'
        assert reason in service.service.metrics.render().decode()
        writer.close()
        async with connect(f"{service.ws}/v1/stream?language=en") as socket:
            assert "ready" in str(await socket.recv())


async def test_a_handshake_that_is_not_answered_in_time_is_broken_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(GuardedSocket, "run_asgi", never)
    async with running(config=config(request_timeout_s=0.2)) as service:
        reader, writer = await asyncio.open_connection(service.host, service.port)
        writer.write(HANDSHAKE % b"GET" + b"\r\n")
        assert await _drops(reader)
        writer.close()


async def test_a_ping_is_answered() -> None:
    async with running(config=config()) as service:
        async with connect(f"{service.ws}/v1/stream") as socket:
            await asyncio.wait_for(await socket.ping(b"now"), 30)


async def test_tls_by_options(tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = subprocess.run(
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost "
        f"-addext subjectAltName=DNS:localhost -keyout {key} -out {certificate}".split(),
        capture_output=True,
        check=False,
    )
    if made.returncode:
        pytest.skip("openssl is not installed")
    options = {"tls_certificate": str(certificate), "tls_key": str(key)}
    async with running(config=config(**options)) as service:
        tls = ssl.create_default_context(cafile=str(certificate))
        url = f"wss://localhost:{service.port}/v1/stream?language=en"
        async with connect(url, ssl=tls) as socket:
            assert "ready" in str(await socket.recv())
