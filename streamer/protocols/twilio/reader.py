"""One reader of a call: the messages of its log as they come, in the form of `/v1/stream`."""

from __future__ import annotations

import asyncio
import contextlib

from streamer import wire
from streamer.protocols.twilio.call import CallLog, CallLogs
from streamer.transport.connection import Connection, race
from streamer.transport.edge import Fault


class CallReader:
    """Follows one call; has nothing to say itself."""

    name = "reader of a call"

    def __init__(
        self,
        calls: CallLogs,
        call: str,
        connection: Connection,
        *,
        after: int,
        with_partials: bool,
    ) -> None:
        """Prepare to read.

        Args:
            call: its name, as the carrier gave it; it may begin later.
            after: number of the message from which on the reader has none.
        """
        self._calls = calls
        self._call = call
        self._connection = connection
        self._after = after
        self._with_partials = with_partials

    async def run(self) -> None:
        self._connection.lift_limits()
        with self._calls.reader(self._call) as log:
            if log is None:
                await self._connection.close(wire.CLOSE_BUSY, "too many calls are waited for")
                return
            await race(self._read_along(log), self._wait_for_close(), self._give_up(log))
        await self._connection.close(wire.CLOSE_NORMAL)

    async def fail(self, fault: Fault) -> None:
        await self._connection.close(fault.close_code, fault.message)

    async def _read_along(self, log: CallLog) -> None:
        await self._connection.send(log.describe())
        following = log.follow(self._after, with_partials=self._with_partials)
        async with contextlib.aclosing(following) as messages:
            async for text in messages:
                await self._connection.send(text)

    async def _wait_for_close(self) -> None:
        while True:
            await self._connection.receive()  # readers have nothing to say

    async def _give_up(self, log: CallLog) -> None:
        """Raise where no call begins in time."""
        await asyncio.sleep(self._calls.grace_s)
        if log.state == "waiting":
            raise wire.ClientFault("unknown_call", "no such call")
        await asyncio.Event().wait()
