"""The bounds on one socket, with a socket that does as it is told."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest
from starlette.websockets import WebSocket

from streamer.transport.connection import (
    Connection,
    Disconnected,
    Limits,
    MessageTooBig,
    Overdue,
    SlowReader,
    race,
    starting_within,
)
from streamer.wire import ClientFault

LIMITS = Limits(max_message_bytes=9, send_timeout_s=0.05, idle_timeout_s=10, max_session_s=10)


class Line:
    """The other side of an ASGI socket: what it sends is listed, what it gets is kept."""

    def __init__(self, *messages: dict[str, Any]) -> None:
        self.messages = [{"type": "websocket.connect"}, *messages]
        self.sent: list[dict[str, Any]] = []
        self.is_stuck = False
        self.is_silent = False

    async def receive(self) -> dict[str, Any]:
        if self.is_silent:
            await asyncio.Event().wait()
        return self.messages.pop(0) if self.messages else {"type": "websocket.disconnect"}

    async def send(self, message: Any) -> None:
        if self.is_stuck:
            await asyncio.Event().wait()
        self.sent.append(message)

    async def accept(self, **limits: Any) -> Connection:
        websocket = WebSocket({"type": "websocket"}, self.receive, self.send)
        await websocket.accept()
        return Connection(websocket, dataclasses.replace(LIMITS, **limits))


async def test_whole_messages_come_in_until_the_client_goes() -> None:
    line = Line(
        {"type": "websocket.receive", "text": "hello"},
        {"type": "websocket.receive", "bytes": b"\0\1"},
        {"type": "websocket.receive", "text": ""},
    )
    connection = await line.accept()
    assert [await connection.receive() for _ in range(3)] == ["hello", b"\0\1", ""]
    with pytest.raises(Disconnected):
        await connection.receive()
    with pytest.raises(Disconnected):
        await connection.send("too late")


async def test_a_message_beyond_the_limit_is_refused() -> None:
    line = Line({"type": "websocket.receive", "bytes": bytes(10)})
    connection = await line.accept()
    with pytest.raises(MessageTooBig, match="at most 9 bytes, got 10"):
        await connection.receive()


async def test_a_client_that_is_silent_for_too_long_is_named() -> None:
    line = Line()
    connection = await line.accept(idle_timeout_s=0.01)
    line.is_silent = True
    with pytest.raises(Overdue, match="a message within 0.01 s") as raised:
        await connection.receive()
    assert raised.value.code == "idle"


@pytest.mark.parametrize("is_silent", [False, True])
async def test_a_client_that_stays_for_too_long_is_named(is_silent: bool) -> None:
    line = Line({"type": "websocket.receive", "text": "late"})
    connection = await line.accept(max_session_s=0.01)
    line.is_silent = is_silent
    if not is_silent:
        await asyncio.sleep(0.02)
    with pytest.raises(Overdue, match="a session of at most 0.01 s") as raised:
        await connection.receive()
    assert raised.value.code == "session_too_long"


async def test_a_client_that_waits_for_its_text_may_be_silent_and_stay() -> None:
    line = Line({"type": "websocket.receive", "text": "late"})
    connection = await line.accept(max_session_s=0.01, idle_timeout_s=0.01)
    connection.lift_limits()
    await asyncio.sleep(0.02)
    assert await connection.receive() == "late"


async def test_a_client_has_to_start_in_time() -> None:
    with pytest.raises(ClientFault, match="expected a start within 0.01 s") as raised:
        async with starting_within(0.01, "a start"):
            await asyncio.Event().wait()
    assert raised.value.code == "start_timeout"


async def test_messages_go_out_in_the_order_of_the_calls() -> None:
    line = Line()
    connection = await line.accept()
    await asyncio.gather(*(connection.send(str(i)) for i in range(5)))
    assert [m["text"] for m in line.sent if m["type"] == "websocket.send"] == list("01234")


async def test_a_client_that_does_not_read_is_found_out_in_time() -> None:
    line = Line()
    connection = await line.accept()
    line.is_stuck = True
    with pytest.raises(SlowReader):
        await connection.send("x")
    await connection.close(1008)  # does not hang either


async def test_closing_twice_sends_one_close() -> None:
    line = Line()
    connection = await line.accept()
    await connection.close(1000, "bye")
    await connection.close(1011)
    closes = [m for m in line.sent if m["type"] == "websocket.close"]
    assert [(m["code"], m["reason"]) for m in closes] == [(1000, "bye")]


async def test_a_reason_is_cut_to_the_bytes_of_a_close_frame() -> None:
    line = Line()
    connection = await line.accept()
    await connection.close(1008, "é" * 100)
    assert line.sent[-1]["reason"] == "é" * 61  # 122 bytes; a whole character more has 124


async def test_a_race_ends_with_its_first_and_cancels_the_rest() -> None:
    cancelled = []

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    async def end() -> None:
        await asyncio.sleep(0)

    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("lost")

    await race(wait(), end())
    with pytest.raises(ValueError, match="lost"):
        await race(wait(), fail())
    assert cancelled == [True, True]
