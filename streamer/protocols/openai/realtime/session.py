"""One client of the Realtime API: what it sends, and the sessions of the service that serve it."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from contextlib import AsyncExitStack
from typing import Any

from engine.api import EngineError
from streamer import wire
from streamer.audio.error import AudioError, UndeclaredAudio
from streamer.protocols.openai.body import parse_object
from streamer.protocols.openai.error import INVALID_REQUEST, ApiError
from streamer.protocols.openai.realtime.items import ItemWriter, Message
from streamer.protocols.openai.realtime.options import RealtimeConfig
from streamer.service import Service
from streamer.session.live import LiveSession
from streamer.transport import base64_audio
from streamer.transport.connection import MAX_ERRORS, Connection, Overdue, race
from streamer.transport.edge import Fault
from streamer.wire import ClientFault

logger = logging.getLogger(__name__)

MIN_COMMIT_MS = 100.0  # less audio is an empty buffer, as at OpenAI
# OpenAI's names of what can go wrong
ERROR_CODES = {"invalid_request": "invalid_value", "internal": "internal_error"}


class _Foreign(Exception):
    """The client speaks vLLM's protocol."""

    def __init__(self, message: dict[str, Any]) -> None:
        super().__init__()
        self.message = message


class RealtimeSession:
    """One client, from the accepted socket to the close.

    A session of the service is opened when the first audio comes. Where an update changes what a
    session cannot change, the format or what ends a turn, another one takes over.
    """

    def __init__(
        self, service: Service, connection: Connection, config: RealtimeConfig, *, is_old: bool
    ) -> None:
        self.id = "sess_" + secrets.token_hex(10)
        self.name = f"realtime {self.id}"
        self._service = service
        self._connection = connection
        self._config = config
        self._items = ItemWriter()
        self._items.is_old = is_old
        self._num_errors = 0
        self._has_failed_update = False  # settings, or what may have been, were not understood
        self._num_buffered = 0  # bytes since the last commit or clear
        self._offset = 0  # samples of the sessions before the open one
        self._live: LiveSession | None = None  # None until there is audio
        self._exit = AsyncExitStack()  # closes the open session
        self._opened: asyncio.Queue[LiveSession] = asyncio.Queue(1)  # for the writer to read
        self._is_replaced = False  # the open session was ended for another one to take over
        self._written = asyncio.Event()  # all that the ended session had to say
        self._overdue: Overdue | None = None  # why no more audio is taken
        # the client's first message, if that is of vLLM's protocol; the socket is still open
        self.foreign: dict[str, Any] | None = None

    async def run(self) -> None:
        logger.info("%s opened", self.name)
        try:
            async with self._exit:
                await self._send_session("created")
                await race(self._read(), self._write(), self._connection.wait_lost())
        except _Foreign as foreign:
            self.foreign = foreign.message
            return
        finally:
            logger.info("%s closed", self.name)
        if self._overdue is not None:
            raise self._overdue
        await self._connection.close(wire.CLOSE_NORMAL)

    async def fail(self, fault: Fault) -> None:
        is_ours = fault.close_code in (wire.CLOSE_BUSY, wire.CLOSE_INTERNAL)
        error = ApiError(
            fault.message,
            code=ERROR_CODES.get(fault.code, fault.code),
            param=fault.field,
            kind="server_error" if is_ours else INVALID_REQUEST,
        )
        await self._send_error(error, None)
        await self._connection.close(fault.close_code, error.code)

    # --- from the client -------------------------------------------------------------------------

    async def _read(self) -> None:
        while True:
            try:
                message = await self._connection.receive()
            except Overdue as error:
                if self._live is None:
                    raise
                # what was said is still delivered, before the error and the close
                self._overdue = error
                await self._live.end()
                await asyncio.Event().wait()
            values: dict[str, Any] = {}
            try:
                values = parse_object(message)
                await self._handle(values)
            except ApiError as error:
                self._num_errors += 1
                kind = values.get("type")
                self._has_failed_update |= not isinstance(kind, str) or kind.endswith(".update")
                if self._num_errors > MAX_ERRORS:
                    raise
                await self._send_error(error, values.get("event_id"))

    async def _handle(self, values: dict[str, Any]) -> None:
        match values.get("type"):
            case "input_audio_buffer.append":
                await self._append(values.get("audio"))
            case "input_audio_buffer.commit":
                await self._commit()
            case "input_audio_buffer.clear":
                await self._clear()
                await self._send({"type": "input_audio_buffer.cleared"})
            case "session.update" if "model" in values and "session" not in values:
                if self._live is None:
                    raise _Foreign(values)
                raise ApiError("session: expected an object", code="invalid_value", param="session")
            case "session.update" | "transcription_session.update" as kind:
                await self._update(values.get("session"), is_old=kind != "session.update")
            case str(kind) if kind.startswith(("response.", "conversation.", "output_audio")):
                raise ApiError(
                    f"{kind} is of conversations; this service transcribes and gives no responses",
                    code="unsupported_event",
                    param="type",
                )
            case other:
                raise ApiError(
                    "expected type session.update or input_audio_buffer.append, .commit or "
                    f".clear, got {other!r:.40}",
                    code="unknown_event",
                    param="type",
                )

    async def _update(self, session: object, *, is_old: bool) -> None:
        if not isinstance(session, dict):
            raise ApiError("session: expected an object", code="invalid_value", param="session")
        before, config = self._config, self._config.update(session)
        self._has_failed_update = False
        self._config = config
        self._items.is_old = self._items.is_old or is_old
        if self._live is not None:
            if (
                config.audio_format == before.audio_format
                and config.is_manual == before.is_manual
                and config.settings.vad_threshold == before.settings.vad_threshold
            ):
                self._live.update(config.settings)
                self._items.update(config)
            else:
                await self._replace(self._live)
        await self._send_session("updated")

    async def _append(self, audio: object) -> None:
        try:
            data = await base64_audio.decode(audio)
        except ValueError:
            raise ApiError("audio: expected base64", code="invalid_value", param="audio") from None
        if not data:
            return
        if self._live is None and self._has_failed_update:
            # with the settings before it would be another session than the client asked for
            message = "expected a session.update that can be read before audio"
            raise ClientFault("not_started", message, field="session")
        live = self._live or await self._open()
        self._items.append()
        self._num_buffered += len(data)
        try:
            await live.feed(data)
        except UndeclaredAudio:
            raise
        except AudioError as error:
            raise ApiError(str(error), code="invalid_audio", param="audio") from None

    async def _commit(self) -> None:
        live, rate = self._live, self._config.audio_format.bytes_per_second
        if self._config.is_manual:
            held_ms = 1000.0 * self._num_buffered / rate
        else:
            # only an open turn is worth a commit: silence, and what is committed already, is not
            held_ms = MIN_COMMIT_MS if live is not None and live.opened_at() is not None else 0.0
        if live is None or held_ms < MIN_COMMIT_MS:
            raise ApiError(
                f"expected at least {MIN_COMMIT_MS:g} ms of audio to commit, "
                f"the buffer holds {held_ms:.2f} ms",
                code="input_audio_buffer_commit_empty",
            )
        self._num_buffered = 0
        if self._config.is_manual:
            for message in self._items.commit():
                await self._send(message)
        await live.finalize()

    async def _clear(self) -> None:
        self._num_buffered = 0
        if self._live is None:
            return
        if self._items.has_uncommitted or not self._config.is_manual:
            self._items.clear(self._live.opened_at())
            await self._live.forget()

    # --- the sessions of the service -------------------------------------------------------------

    async def _open(self) -> LiveSession:
        live = await self._exit.enter_async_context(
            self._service.session(self._config.audio_format, self._config.settings)
        )
        self._items.begin(self._config, self._offset)
        self._live = live
        self._opened.put_nowait(live)
        return live

    async def _replace(self, live: LiveSession) -> None:
        """End a session and deliver all its text; the next audio opens another one."""
        if self._items.has_uncommitted:
            for message in self._items.commit():
                await self._send(message)
        self._is_replaced = True
        self._written.clear()
        await live.end()
        await self._written.wait()
        self._offset += live.duration
        await self._exit.aclose()
        self._live, self._is_replaced, self._num_buffered = None, False, 0

    async def _write(self) -> None:
        """Send the text of the sessions; ends when the service ends one of them."""
        while True:
            live = await self._opened.get()
            try:
                async for event in live.events():
                    for message in self._items.translate(event):
                        await self._send(message)
            except EngineError as error:
                for message in self._items.fail(str(error)):
                    await self._send(message)
                raise
            if not self._is_replaced:
                return
            self._written.set()

    # --- to the client ---------------------------------------------------------------------------

    async def _send_session(self, what: str) -> None:
        if self._items.is_old:
            kind, session = "transcription_session", self._config.describe_old(self.id)
        else:
            kind, session = "session", self._config.describe(self.id)
        message: Message = {"type": f"{kind}.{what}", "session": session}
        if what == "created":
            # where vLLM's clients look for them
            message |= {"id": self.id, "created": int(time.time())}
        await self._send(message)

    async def _send_error(self, error: ApiError, event_id: object) -> None:
        its_id = event_id if isinstance(event_id, str) else None
        await self._send({"type": "error", "error": {**error.fields, "event_id": its_id}})

    async def _send(self, message: Message) -> None:
        event = {"event_id": "event_" + secrets.token_hex(10), **message}
        await self._connection.send(json.dumps(event, ensure_ascii=False, allow_nan=False))
