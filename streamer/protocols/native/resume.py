"""One socket of `/v1/stream`: it carries a session, or resumes one that another socket lost."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time

from streamer import protocol, wire
from streamer.access.keys import current_key
from streamer.access.refusal import RETRY_AFTER_S
from streamer.protocols.native.parking import Parking
from streamer.protocols.native.session import EMPTY_MESSAGE, StreamSession
from streamer.service import Service
from streamer.transport.connection import (
    Connection,
    SlowReader,
    race,
    starting_within,
)
from streamer.transport.edge import Fault, attempt
from streamer.wire import ClientFault

logger = logging.getLogger(__name__)

MAX_UNSENT_BYTES = 2**20  # of messages that wait for a client; more and it is dropped
UNKNOWN_SESSION = ClientFault(
    "unknown_session", "no such session, or it is too long ago", field="session"
)


def find_session(parking: Parking, session_id: str) -> StreamSession | None:
    """Find a session whose client is away, of the key that asks."""
    session = parking.find(session_id)
    return session if session and session.key_name == current_key.get().name else None


class Client:
    """One socket: carries a session of its own, or one that another socket lost."""

    def __init__(
        self,
        service: Service,
        parking: Parking,
        carried: dict[str, Client],
        connection: Connection,
        parameters: dict[str, list[str]],
    ) -> None:
        self._service = service
        self._parking = parking
        self._carried = carried
        self._connection = connection
        self._parameters = parameters  # of the URL's query
        self._session = StreamSession(service)
        self._cursor = -1  # seq up to which this socket has all
        self._changed = asyncio.Event()
        self._has_failed_start = False  # what may have been a start could not be understood
        self._is_replaced = False  # another socket carries the session now
        self._left = asyncio.Event()

    @property
    def name(self) -> str:
        return self._session.name

    async def run(self) -> None:
        self._carry(self._session)
        await race(self._write(), self._read(), self._announce_stop(), self._connection.wait_lost())

    async def fail(self, fault: Fault) -> None:
        # neither from the client nor from its session, which says itself what is wrong
        await self._connection.close(fault.close_code, fault.code)

    # --- to the client ---------------------------------------------------------------------------

    async def _write(self) -> None:
        """Send the messages of the session, then the close."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            if self._is_replaced:
                await self._connection.close(wire.CLOSE_PROTOCOL_ERROR, "resumed elsewhere")
                return
            session = self._session
            if session.journal.num_unsent_bytes > MAX_UNSENT_BYTES:
                raise SlowReader
            for entry in session.journal.after(self._cursor):
                await self._connection.send(entry.text)
                self._cursor = entry.seq
            session.journal.mark_sent(self._cursor)
            if session.close_code is not None and not session.journal.after(self._cursor):
                await self._connection.close(session.close_code, session.close_reason)
                session.finish_delivery()
                return

    async def _announce_stop(self) -> None:
        """Tell the client when the service stops, so that it goes on elsewhere."""
        await self._service.draining.wait()
        if self._session.start is not None and not self._session.is_over:
            self._session.say(protocol.Reconnect(retry_after_s=RETRY_AFTER_S))
        elif not self._session.is_over:
            self._session.conclude(wire.CLOSE_RESTART, "restarting")
        await asyncio.Event().wait()

    # --- from the client -------------------------------------------------------------------------

    async def _read(self) -> None:
        """Pass on what the client sends until the session is over."""
        fault = await attempt(self._open_and_listen(), self.name)
        if fault is not None:
            self._session.fail(fault)
        # the socket closes when all is sent; until then nothing more is read
        await asyncio.Event().wait()

    async def _open_and_listen(self) -> None:
        await self._open()
        # ended before it began, or refused: what still comes belongs to nothing
        if self._session.start is not None:
            await self._session.listen(self._connection)

    async def _open(self) -> None:
        """Wait for what opens the session: settings, audio, or the session to resume."""
        query = protocol.parse_query(self._parameters)
        assert isinstance(query.message, protocol.Start)
        if protocol.has_start(self._parameters):
            await self._begin(query)
            return
        self._session.report_ignored(query.ignored)
        timeout_s, since = self._service.config.start_timeout_s, time.monotonic()
        while self._session.start is None and not self._session.is_over:
            # the client's time alone: how long the session takes to open is not its fault
            async with starting_within(timeout_s, "start or audio", since):
                message = await self._connection.receive()
            await self._take_opening(message, query)

    async def _take_opening(self, message: str | bytes, query: protocol.Parsed) -> None:
        if isinstance(message, bytes):
            if not message:
                self._session.report(EMPTY_MESSAGE)
                return
            if self._has_failed_start:
                # with the defaults it would be another session than the client asked for
                raise ClientFault("not_started", "expected a valid start before audio")
            await self._begin(query)
            await self._session.take(message)
            return
        parsed = self._parse(message)
        match parsed and parsed.message:
            case protocol.Start():
                assert parsed is not None
                await self._begin(parsed)
            case protocol.Resume() as resume:
                await self._resume(resume)
            case protocol.End():
                self._session.say(protocol.Done(duration=0.0, segments=0))
                self._session.conclude(wire.CLOSE_NORMAL)
            case protocol.Update() | protocol.Finalize():
                self._session.report(ClientFault("not_started", "expected start or audio first"))

    def _parse(self, text: str) -> protocol.Parsed | None:
        try:
            return protocol.parse_client(text)
        except ClientFault as error:
            self._has_failed_start = True  # whatever is wrong, it may have been a start
            self._session.report(error)
            return None

    async def _begin(self, parsed: protocol.Parsed) -> None:
        assert isinstance(parsed.message, protocol.Start)
        refusal = self._service.refusal()
        if refusal is not None and refusal.code == "busy":
            await self._parking.evict_oldest()
        await self._session.begin(parsed.message)
        self._session.report_ignored(parsed.ignored)

    # --- one session, several sockets ------------------------------------------------------------

    async def _resume(self, resume: protocol.Resume) -> None:
        """Carry on with a session that lost its socket, or tell that it is gone."""
        previous = self._carried.get(resume.session)
        if previous not in (None, self) and previous.key_name == self.key_name:
            # the server may not have noticed yet that the old socket is dead
            previous.replace()
            await previous.wait_left()
        session = None
        if find_session(self._parking, resume.session) is not None:
            session = await self._parking.take(resume.session)
        if session is None:
            self._service.metrics.resumed("unknown")
            self._session.report(UNKNOWN_SESSION)
            return
        self._service.metrics.resumed("resumed")
        ready = dataclasses.replace(session.ready(), resumed=True, seq=resume.seq)
        has_all = session.journal.has_all_after(resume.seq)
        del self._carried[self._session.id]
        self._session = session
        await self._connection.send(protocol.encode(ready))
        self._cursor = resume.seq
        self._carry(session)
        if not has_all:
            session.report(
                ClientFault("messages_lost", f"expected a seq that is kept, got {resume.seq}")
            )

    @property
    def key_name(self) -> str:
        """Of the key whose session this is."""
        return self._session.key_name

    def replace(self) -> None:
        """Let another socket carry the session."""
        self._is_replaced = True
        self._changed.set()

    async def wait_left(self) -> None:
        """Return when this socket has let go of its session."""
        await self._left.wait()

    def _carry(self, session: StreamSession) -> None:
        self._carried[session.id] = self
        session.on_change = self._changed.set
        self._changed.set()

    async def leave(self) -> None:
        """Let go of the session: it waits for its client to come back, or ends."""
        session = self._session
        self._carried.pop(session.id, None)
        session.on_change = lambda: None
        if session.is_resumable:
            await self._parking.park(session)
        else:
            await session.close()
        self._left.set()
