from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

import pytest

from streamer.protocols.twilio import webhook
from streamer.protocols.twilio.webhook import MAX_WAITING, Webhook


class Receiver:
    """An HTTP server that answers with the statuses it was given, then with 200."""

    def __init__(self, statuses: list[int]) -> None:
        self.statuses = statuses
        self.bodies: list[str] = []
        self.url = ""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        assert "content-type: application/json" in head
        length = int(head.split("content-length:")[1].split("\r\n")[0])
        self.bodies.append((await reader.readexactly(length)).decode())
        status = self.statuses.pop(0) if self.statuses else 200
        if status:
            writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n".encode())
        writer.close()


@contextlib.asynccontextmanager
async def receiving(*statuses: int) -> AsyncIterator[Receiver]:
    receiver = Receiver(list(statuses))
    server = await asyncio.start_server(receiver.answer, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    receiver.url = f"http://{host}:{port}/hook"
    try:
        yield receiver
    finally:
        server.close()
        await server.wait_closed()


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "FIRST_PAUSE_S", 0.01)


async def test_messages_arrive_in_order_before_the_context_is_left() -> None:
    async with receiving() as receiver:
        async with Webhook(receiver.url) as hook:
            for number in range(5):
                hook.post(json.dumps({"n": number}))
        assert [json.loads(body)["n"] for body in receiver.bodies] == [0, 1, 2, 3, 4]
        assert hook.num_lost == 0


@pytest.mark.parametrize("status", [500, 503, 429, 0])
async def test_a_passing_failure_is_tried_again(status: int) -> None:
    async with receiving(status, status) as receiver:
        async with Webhook(receiver.url) as hook:
            hook.post("1")
            hook.post("2")
        assert receiver.bodies == ["1", "1", "1", "2"]
        assert hook.num_lost == 0


@pytest.mark.parametrize("status", [301, 401, 404])
async def test_a_refusal_is_not_tried_again(status: int) -> None:
    async with receiving(status) as receiver:
        async with Webhook(receiver.url) as hook:
            hook.post("1")
            hook.post("2")
        assert receiver.bodies == ["1", "2"]
        assert hook.num_lost == 1


async def test_what_is_no_http_is_a_failure() -> None:
    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ESMTP\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    async with Webhook(f"http://{host}:{port}/") as hook:
        hook.post("1")
    assert hook.num_lost == 1
    server.close()
    await server.wait_closed()


async def test_nobody_there_loses_messages_and_nothing_else() -> None:
    async with Webhook("http://127.0.0.1:9/hook") as hook:
        hook.post("1")
    assert hook.num_lost == 1


async def test_a_hook_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "FLUSH_TIMEOUT_S", 0.2)
    monkeypatch.setattr(webhook, "ANSWER_TIMEOUT_S", 0.6)

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    async with asyncio.timeout(30):
        async with Webhook(f"http://{host}:{port}/") as hook:
            hook.post("1")
            hook.post("2")
    assert hook.num_lost >= 1
    server.close()
    await server.wait_closed()


async def test_what_waits_is_bounded() -> None:
    async with receiving() as receiver:
        async with Webhook(receiver.url) as hook:
            for number in range(MAX_WAITING + 7):
                hook.post(str(number))
        assert hook.num_lost == 7
        assert len(receiver.bodies) == MAX_WAITING


async def test_no_address_posts_nothing() -> None:
    async with Webhook("") as hook:
        hook.post("1")
    assert hook.num_lost == 0
