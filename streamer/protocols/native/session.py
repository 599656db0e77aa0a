"""A session of `/v1/stream` apart from the socket that carries it.

It takes what the client sends in order, numbers the messages to it, and goes on while its client
is away, if that client asked for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import secrets
from collections.abc import Callable

from streamer import protocol, wire
from streamer.access.keys import current_key
from streamer.protocol import ServerMessage, Start
from streamer.protocols.language_names import read_language
from streamer.protocols.native.audio_input import AudioInput
from streamer.protocols.native.journal import Journal
from streamer.protocols.native.options import check_language, read_settings, updated
from streamer.protocols.native.sample_check import SampleCheck
from streamer.schema import RangeError
from streamer.service import Service
from streamer.session.live import LiveSession
from streamer.transcription.settings import SessionSettings
from streamer.transport.connection import MAX_ERRORS, Connection, Overdue, race
from streamer.transport.edge import Fault, attempt
from streamer.wire import ClientFault

logger = logging.getLogger(__name__)

Input = bytes | protocol.Update | protocol.Finalize | protocol.End

EMPTY_MESSAGE = ClientFault("empty_message", "expected audio, got a message of 0 bytes")


class StreamSession:
    """What one client sends and is told. Begun by `begin`, given up by `close`."""

    def __init__(self, service: Service) -> None:
        self.id = secrets.token_urlsafe(16)  # whoever knows it can resume the session
        self.name = f"session {self.id[:6]}"  # for the log: whoever knows all of it can resume
        self.key_name = current_key.get().name
        self.journal = Journal()
        # why and how the socket closes once all is sent; None while the session goes on
        self.close_code: int | None = None
        self.close_reason = ""
        self.start: Start | None = None  # None until it is begun
        # called when there is something to send; set by the socket that carries the session
        self.on_change: Callable[[], None] = _nothing
        self._service = service
        # what the client sent, in order, and is not transcribed far enough to take more
        self._inputs: asyncio.Queue[Input] = asyncio.Queue(1)
        self._opened = asyncio.Event()
        self._delivered = asyncio.Event()  # all is sent, or no longer wanted
        self._task: asyncio.Task[None] | None = None
        self._live: LiveSession | None = None
        self._check: SampleCheck | None = None  # from `begin` on
        self._num_bytes = 0  # of audio taken
        self._num_errors = 0
        self._reported: set[tuple[str, str | None]] = set()  # what is said only once
        self._is_ended = False  # the client said so; no more audio is taken

    @property
    def is_over(self) -> bool:
        """All is said."""
        return self.close_code is not None

    @property
    def is_resumable(self) -> bool:
        """There is something left for a client that comes back, and it asked for that."""
        has_failed = self.close_code not in (None, wire.CLOSE_NORMAL)
        return self.resume_s is not None and not has_failed and not self._delivered.is_set()

    @property
    def resume_s(self) -> float | None:
        """How long a broken connection has to come back."""
        grace_s = self._service.config.resume_grace_s
        return grace_s if self.start is not None and self.start.resumable and grace_s > 0 else None

    # --- from the client -------------------------------------------------------------------------

    async def begin(self, start: Start) -> None:
        """Open the session; returns when it is open or has failed.

        Raises:
            ClientFault: a value is out of its range.
        """
        assert self.start is None, "begun once"
        info = self._service.info
        assert info is not None, "a service without a model refuses"
        check_language(start.language, info)
        settings = read_settings(start)
        try:
            audio = AudioInput(start.encoding, start.sample_rate, start.channels)
        except RangeError as error:
            code, text = "invalid_value", str(error)
            raise ClientFault(code, text, field=error.field, is_fatal=True) from None
        self.start = start
        self._check = SampleCheck(start)
        self.journal.keep_sent = self.resume_s is not None
        self._task = asyncio.create_task(self._run(start, audio, settings), name=self.name)
        await self._opened.wait()

    async def listen(self, connection: Connection) -> None:
        """Take what a socket brings, until the time of its client is over.

        Raises:
            Disconnected, MessageTooBig: as the connection raises them.
        """
        while True:
            try:
                message = await connection.receive()
            except Overdue as error:
                # what was said still arrives
                self.say(protocol.Error(error.code, error.message, True))
                await self.take(protocol.End())
                return
            item = message if isinstance(message, bytes) else self._parse(message)
            if item is not None:
                await self.take(item)

    async def take(self, item: Input) -> None:
        """Take audio or a command; waits while the session is too far ahead of its text.

        What is taken counts, and only that: the session keeps it if its client goes away.
        """
        assert self._check is not None, "begun"
        if self._is_ended:
            self._refuse_after_end(item)
        elif isinstance(item, bytes):
            if not item:
                self.report(EMPTY_MESSAGE)
                return
            await self._inputs.put(item)
            self._num_bytes += len(item)
            if self._check.is_float and (error := self._check.take(item)) is not None:
                self.report_once(error)
        else:
            await self._inputs.put(item)
            if isinstance(item, protocol.End):
                self._is_ended = True
                if (error := self._check.finish(self._num_bytes)) is not None:
                    self.report(error)

    def _parse(self, text: str) -> Input | None:
        """Read a message of an open session; None, and reported, where it is not one."""
        try:
            parsed = protocol.parse_client(text)
            if isinstance(parsed.message, protocol.Update):
                info = self._service.info
                assert info is not None, "begun"
                check_language(parsed.message.language, info)
        except ClientFault as error:
            self.report(error)
            return None
        self.report_ignored(parsed.ignored)
        if isinstance(parsed.message, protocol.Start | protocol.Resume):
            self.report(ClientFault("already_started", "expected start or resume only once"))
            return None
        return parsed.message

    def _refuse_after_end(self, item: Input) -> None:
        found = "audio" if isinstance(item, bytes) else "another message"
        code = "audio_after_end" if isinstance(item, bytes) else "already_ended"
        self.report_once(ClientFault(code, f"expected nothing after end, got {found}"))

    # --- to the client ---------------------------------------------------------------------------

    def say(self, message: ServerMessage) -> None:
        """Number a message and have it sent."""
        message = dataclasses.replace(message, seq=self.journal.next_seq)
        segment = None
        if isinstance(message, protocol.Partial):
            segment = message.channel, message.segment
        elif isinstance(message, protocol.Final):
            self.journal.close_segment((message.channel, message.segment))
        self.journal.append(protocol.encode(message), partial_of=segment)
        self.on_change()

    def report(self, error: ClientFault) -> None:
        """Tell the client what was wrong; the session goes on unless it is too much."""
        self._num_errors += 1
        if error.is_fatal:
            code, message = error.code, error.message
            self.fail(Fault(wire.CLOSE_PROTOCOL_ERROR, code, message, error.field))
        elif self._num_errors > MAX_ERRORS:
            message = f"expected at most {MAX_ERRORS} errors"
            self.fail(Fault(wire.CLOSE_PROTOCOL_ERROR, "too_many_errors", message))
        else:
            self.say(protocol.Error(error.code, error.message, False, field=error.field))

    def report_once(self, error: ClientFault) -> None:
        """Tell the client what was wrong, unless it was told before."""
        if (error.code, error.field) not in self._reported:
            self._reported.add((error.code, error.field))
            self.report(error)

    def report_ignored(self, names: tuple[str, ...]) -> None:
        """Name the fields that this version does not know, each once."""
        for name in names:
            self.report_once(
                ClientFault("unknown_field", f"{name}: not a field, ignored", field=name)
            )

    def fail(self, fault: Fault) -> None:
        """Tell the client that the session cannot go on, and end it."""
        if self.is_over:
            return
        message = fault.message
        if fault.close_code == wire.CLOSE_INTERNAL:
            message = f"{message} in {self.name}"
        self.say(
            protocol.Error(
                fault.code, message, True, field=fault.field, retry_after_s=fault.retry_after_s
            )
        )
        self.conclude(fault.close_code, fault.code)

    def conclude(self, close_code: int, reason: str = "") -> None:
        """Have the socket closed once all is sent."""
        if not self.is_over:
            self.close_code, self.close_reason = close_code, reason
            self.on_change()

    def finish_delivery(self) -> None:
        """Note that all is sent, or no longer wanted: the session's place is free."""
        self._delivered.set()

    # --- its life --------------------------------------------------------------------------------

    def leave(self) -> None:
        """Free the session's place; what was said is still made final."""
        self.finish_delivery()
        if self._live is not None:
            self._live.is_leaving = True

    async def expire(self) -> None:
        """End the audio for a client that did not come back; return when its text is final."""
        self.leave()
        if not self._is_ended:
            self._is_ended = True
            await self._inputs.put(protocol.End())
        if self._task is not None:
            await asyncio.wait((self._task,))

    async def close(self) -> None:
        """Abort what is still running."""
        self.finish_delivery()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, start: Start, audio: AudioInput, settings: SessionSettings) -> None:
        work = self._transcribe(start, audio, settings)
        try:
            fault = await attempt(work, self.name)
            if fault is not None:
                self.fail(fault)
        finally:
            self._opened.set()
            if self._live is not None:
                logger.info(
                    "%s closed: %.1f s, %d segments, %d errors",
                    self.name,
                    wire.seconds(self._live.duration),
                    self._live.num_segments,
                    self._num_errors,
                )

    async def _transcribe(self, start: Start, audio: AudioInput, settings: SessionSettings) -> None:
        async with audio:
            async with self._service.session(audio.format, settings) as live:
                self._live = live
                self.say(self.ready())
                self._opened.set()
                logger.info("%s opened: %s", self.name, audio.format)
                await race(self._speak(live, start.words), self._hear(live, audio, settings))
                # the place is held until the text is out: a shutdown waits for it
                await self._delivered.wait()

    def ready(self) -> protocol.Ready:
        """Describe the session as it is now."""
        info, start = self._service.info, self.start
        assert info is not None and start is not None, "loaded and begun"
        return protocol.Ready(
            session=self.id,
            model=info.name,
            encoding=start.encoding,
            sample_rate=start.sample_rate,
            channels=start.channels,
            language=read_language(start.language),
            resume_s=self.resume_s,
            received_bytes=self._num_bytes,
        )

    async def _speak(self, live: LiveSession, with_words: bool) -> None:
        async for event in live.events():
            self.say(protocol.from_event(event, with_words=with_words))
        self.say(protocol.Done(duration=wire.seconds(live.duration), segments=live.num_segments))
        self.conclude(wire.CLOSE_NORMAL)

    async def _hear(self, live: LiveSession, audio: AudioInput, settings: SessionSettings) -> None:
        while True:
            match await self._inputs.get():
                case bytes() as data:
                    async with contextlib.aclosing(audio.decode(data)) as pieces:
                        async for piece in pieces:
                            await live.feed(piece)
                case protocol.Update() as update:
                    settings = updated(settings, update)
                    live.update(settings)
                case protocol.Finalize():
                    await live.finalize()
                case protocol.End():
                    async with contextlib.aclosing(audio.flush()) as pieces:
                        async for piece in pieces:
                            await live.feed(piece)
                    await live.end()


def _nothing() -> None:
    """Do nothing: no socket carries the session now."""
