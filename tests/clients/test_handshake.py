from __future__ import annotations

import asyncio

import pytest

from clients.handshake import NoServer, Refused, open_socket, socket_url


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("ws://localhost:8000", "ws://localhost:8000/v1/stream"),
        ("localhost:8000", "ws://localhost:8000/v1/stream"),
        ("http://host", "ws://host/v1/stream"),
        ("https://host/stt/", "wss://host/stt/v1/stream"),
        ("wss://host/v1/stream", "wss://host/v1/stream"),
        ("ws://[::1]:9/?language=de", "ws://[::1]:9/v1/stream?language=de"),
    ],
)
def test_addresses_are_completed(address: str, expected: str) -> None:
    assert socket_url(address) == expected


def test_another_route_stands_in_the_same_folder() -> None:
    assert socket_url("https://host/stt/", "/v1/twilio") == "wss://host/stt/v1/twilio"


async def _answering(answer: bytes) -> tuple[asyncio.Server, str]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    return server, f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize(
    ("answer", "code", "retry_after_s", "words"),
    [
        (
            b"HTTP/1.1 503 X\r\nRetry-After: 7\r\nContent-Length: 49\r\n\r\n"
            b'{"error": {"code": "busy", "message": "no room"}}',
            "busy",
            7.0,
            "no room",
        ),
        (b"HTTP/1.1 404 X\r\nContent-Length: 0\r\n\r\n", "", None, "HTTP 404"),
        (
            b"HTTP/1.1 503 X\r\nRetry-After: Sunday\r\nContent-Length: 4\r\n\r\noops",
            "",
            None,
            "HTTP 503",
        ),
    ],
    ids=["full", "absent", "odd"],
)
async def test_a_refusal_says_what_the_server_says(
    answer: bytes, code: str, retry_after_s: float | None, words: str
) -> None:
    server, url = await _answering(answer)
    async with server:
        with pytest.raises(Refused, match=words) as refused:
            await open_socket(url, "key")
    assert (refused.value.code, refused.value.retry_after_s) == (code, retry_after_s)


async def test_a_server_that_is_not_a_web_server_is_named() -> None:
    server, url = await _answering(b"220 mail ready\r\n\r\n")
    async with server:
        with pytest.raises(NoServer, match="not a Wordwire server"):
            await open_socket(url, None)


async def test_an_address_that_is_none_is_named() -> None:
    with pytest.raises(NoServer, match="expected an address"):
        await open_socket("mailto:me", None)
