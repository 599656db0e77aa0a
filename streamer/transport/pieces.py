"""What a socket has read, handed on in pieces.

A parser takes some ten microseconds for each frame or chunk, however small. 256 KiB, which a socket
may read at once, hold 40,000 of the smallest, and would hold up everyone else for half a second.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

PIECE_BYTES = 8 * 1024  # a thousand of the smallest frames


class Pieces:
    """Hands on what one socket reads, each piece in a turn of the event loop of its own."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        take: Callable[[bytes], None],
        pause: Callable[[], None],
        resume: Callable[[], None],
    ) -> None:
        """Begin with nothing.

        Args:
            take: parses a piece.
            pause: stops reading from the socket; may be called where that is so already.
            resume: reads on, unless whoever takes has enough.
        """
        self._loop = loop
        self._take = take
        self._pause = pause
        self._resume = resume
        self._left: deque[bytes] = deque()  # bounded by one read: none follows while any is left
        self._is_paused = False
        self._on_empty: Callable[[], None] | None = None

    def put(self, data: bytes) -> None:
        """Hand on data, its first piece at once unless others wait."""
        is_idle = not self._left
        for first in range(0, len(data), PIECE_BYTES):
            self._left.append(data[first : first + PIECE_BYTES])
        if is_idle and self._left:
            self._next()

    def finish(self, then: Callable[[], None]) -> None:
        """Call back once all is handed on: at once where nothing waits."""
        if self._left:
            self._on_empty = then
        else:
            then()

    def _next(self) -> None:
        self._take(self._left[0])
        self._left.popleft()
        if self._left:
            self._pause()  # each time: whoever takes may have read on meanwhile
            self._loop.call_soon(self._next)
        elif self._on_empty is not None:
            self._on_empty()
        elif self._is_paused:
            self._resume()
        self._is_paused = bool(self._left)
