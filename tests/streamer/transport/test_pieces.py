"""What a socket has read, handed on in pieces."""

from __future__ import annotations

import asyncio

from streamer.transport.pieces import PIECE_BYTES, Pieces


async def test_all_is_handed_on_in_order_and_others_have_turns_between() -> None:
    taken: list[bytes] = []
    turns: list[int] = []
    pieces = Pieces(asyncio.get_running_loop(), taken.append)
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
    pieces = Pieces(asyncio.get_running_loop(), taken.append)
    pieces.put(b"a")
    pieces.put(b"b")
    pieces.finish(lambda: taken.append(b"end"))
    assert taken == [b"a", b"b", b"end"]
