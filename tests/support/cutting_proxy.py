"""A TCP relay in front of a server, whose connections a test can cut like a bad network."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator


class Relay:
    """Passes bytes both ways; `cut` breaks all connections, `is_open` lets new ones through."""

    def __init__(self, port: int) -> None:
        self.target = port
        self.port = 0
        self.num_accepted = 0
        self.is_open = True
        self._writers: set[asyncio.StreamWriter] = set()

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.num_accepted += 1
        if not self.is_open:
            writer.transport.abort()
            return
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
        both = {writer, far_writer}
        self._writers |= both
        try:
            await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))
        finally:
            self._writers -= both
            for each in both:
                each.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.transport.abort()


@contextlib.asynccontextmanager
async def relay(port: int) -> AsyncIterator[Relay]:
    """Relay a free port to another one of this machine."""
    found = Relay(port)
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.port = server.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        server.close()
        found.cut()
        await server.wait_closed()
        await asyncio.sleep(0.05)  # aborted transports close in the loop's next rounds
