"""Sockets are counted by address, and closed when their key is gone."""

from __future__ import annotations

import asyncio

from starlette.types import Message

from streamer.access.keys import ApiKey
from streamer.transport.open_sockets import OpenSockets

ONE, TWO = ApiKey("one", b"1"), ApiKey("two", b"2")


class Sender:
    """Takes what a socket is sent."""

    def __init__(self, error: Exception | None = None) -> None:
        self.sent: list[Message] = []
        self._error = error

    async def __call__(self, message: Message) -> None:
        if self._error is not None:
            raise self._error
        self.sent.append(message)


async def test_room_is_bounded_together_and_by_address() -> None:
    sockets = OpenSockets(max_sockets=3, max_per_address=2)
    async with sockets.hold("a", ONE, Sender()), sockets.hold("a", ONE, Sender()):
        assert not sockets.has_room("a") and sockets.has_room("b")
        async with sockets.hold("b", ONE, Sender()):
            assert len(sockets) == 3 and not sockets.has_room("c")
    assert len(sockets) == 0 and sockets.has_room("a")


async def test_zero_is_no_limit_for_an_address() -> None:
    sockets = OpenSockets(max_sockets=3, max_per_address=0)
    async with sockets.hold("a", ONE, Sender()), sockets.hold("a", ONE, Sender()):
        assert sockets.has_room("a")


async def test_only_sockets_of_a_revoked_key_are_closed_and_once() -> None:
    sockets, one, two = OpenSockets(9, 0), Sender(), Sender()
    async with sockets.hold("a", ONE, one), sockets.hold("a", TWO, two):
        for _ in range(2):
            sockets.close_revoked(lambda key: key == TWO)
            await asyncio.sleep(0)
        assert [message["code"] for message in one.sent] == [1008] and not two.sent


async def test_a_socket_that_is_gone_already_is_no_error() -> None:
    sockets = OpenSockets(9, 0)
    for error in (OSError(), RuntimeError()):
        async with sockets.hold("a", ONE, Sender(error)) as socket:
            sockets.close_revoked(lambda _: False)
            assert socket.closing is not None
            await socket.closing


async def test_a_close_that_nobody_reads_ends_with_its_socket() -> None:
    async def never(_: Message) -> None:
        await asyncio.Event().wait()

    sockets = OpenSockets(9, 0)
    async with sockets.hold("a", ONE, never) as socket:
        sockets.close_revoked(lambda _: False)
        await asyncio.sleep(0)
    assert socket.closing is not None and socket.closing.cancelled()
