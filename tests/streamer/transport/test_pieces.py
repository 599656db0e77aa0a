"""What a socket has read, handed on in pieces."""

from __future__ import annotations

import asyncio

import pytest

from streamer.transport.pieces import PIECE_BYTES, Pieces


async def test_all_is_handed_on_in_order_and_others_have_turns_between() -> None:
    taken: list[bytes] = []
    turns: list[int] = []
    reading: list[bool] = []
    pieces = Pieces(
        asyncio.get_running_loop(),
        taken.append,
        lambda: reading.append(False),
        lambda: reading.append(True),
    )
    data = bytes(range(256)) * (PIECE_BYTES // 64)
    pieces.put(data)
    pieces.put(b"more")
    pieces.finish(lambda: taken.append(b"end"))
    assert len(taken) == 1
    while taken[-1] != b"end":
        turns.append(len(taken))
        await asyncio.sleep(0)
    assert b"".join(taken) == data + b"more" + b"end"
    assert turns == list(range(1, len(taken) - 1)) and max(map(len, taken)) <= PIECE_BYTES


async def test_what_is_short_is_handed_on_at_once() -> None:
    taken: list[bytes] = []
    pieces = Pieces(asyncio.get_running_loop(), taken.append, pytest.fail, pytest.fail)
    pieces.put(b"a")
    pieces.put(b"b")
    pieces.finish(lambda: taken.append(b"end"))
    assert taken == [b"a", b"b", b"end"]


async def test_nothing_is_read_while_pieces_are_left() -> None:
    reading: list[bool] = []
    taken: list[bytes] = []
    pieces = Pieces(
        asyncio.get_running_loop(),
        taken.append,
        lambda: reading.append(False),
        lambda: reading.append(True),
    )
    pieces.put(bytes(3 * PIECE_BYTES))
    while len(taken) < 3:
        assert not any(reading)
        await asyncio.sleep(0)
    # after each piece but the last: whoever takes may have begun to read meanwhile
    assert reading == [False, False, True]
