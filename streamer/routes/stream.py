"""`/v1/stream`: sound in, captions out, in the protocol that docs/protocol.md specifies."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
import secrets

from starlette.routing import BaseRoute, WebSocketRoute
from starlette.websockets import WebSocket

from engine.api import EngineBusy, InvalidRequest, Task
from streamer import protocol
from streamer.audio import AudioFormat
from streamer.connection import (
    Connection,
    Disconnected,
    MessageTooBig,
    SlowReader,
    race,
    refuse,
)
from streamer.live import LiveSession
from streamer.protocol import ProtocolError, ServerMessage
from streamer.service import RETRY_AFTER_S, Service
from streamer.settings import Delay, Endpointing, SessionSettings

logger = logging.getLogger(__name__)

MAX_ERRORS = 100  # messages that a client may get wrong before its session is closed
# query parameters that belong to others than `start`: access
FOREIGN_PARAMETERS = frozenset({"key", "token"})


def routes(service: Service) -> list[BaseRoute]:
    """Serve `/v1/stream`."""
    return [WebSocketRoute(protocol.PATH, functools.partial(_serve, service))]


async def _serve(service: Service, websocket: WebSocket) -> None:
    if (refusal := service.refusal()) is not None:
        await refuse(websocket, refusal)
        return
    parameters = {
        name: websocket.query_params.getlist(name)
        for name in websocket.query_params
        if name not in FOREIGN_PARAMETERS
    }
    await websocket.accept()
    config = service.config
    connection = Connection(
        websocket,
        max_message_bytes=config.max_message_bytes,
        send_timeout_s=config.send_timeout_s,
    )
    await StreamSession(service, connection).run(parameters)


class StreamSession:
    """One client of `/v1/stream`, from the accepted socket to the close."""

    def __init__(self, service: Service, connection: Connection) -> None:
        self.id = secrets.token_urlsafe(12)
        self._service = service
        self._connection = connection
        self._seq = 0  # of the next message
        self._num_errors = 0
        self._num_bytes = 0  # of audio
        self._frame_bytes = 1  # of one sample of all channels
        self._reported: set[str] = set()  # what is said only once
        self._is_ended = False  # no more audio is taken

    async def run(self, parameters: dict[str, list[str]]) -> None:
        """Serve the client; never raise for what it does."""
        try:
            await self._run(parameters)
            await self._connection.close(protocol.CLOSE_NORMAL)
        except Disconnected:
            logger.debug("session %s: the client is gone", self.id)
        except SlowReader:
            logger.info("session %s: dropped, its client does not read", self.id)
            await self._connection.close(protocol.CLOSE_PROTOCOL_ERROR, "slow reader")
        except ProtocolError as error:
            await self._fail(
                protocol.CLOSE_PROTOCOL_ERROR, error.code, error.message, field=error.field
            )
        except MessageTooBig as error:
            await self._fail(protocol.CLOSE_TOO_BIG, "too_big", str(error))
        except InvalidRequest as error:
            await self._fail(protocol.CLOSE_PROTOCOL_ERROR, "invalid_request", str(error))
        except EngineBusy as error:
            await self._fail(protocol.CLOSE_BUSY, "busy", str(error), retry_after_s=RETRY_AFTER_S)
        except Exception:
            logger.exception("session %s failed", self.id)
            await self._fail(
                protocol.CLOSE_INTERNAL, "internal", f"internal error in session {self.id}"
            )

    async def _run(self, parameters: dict[str, list[str]]) -> None:
        opening = await self._open(parameters)
        if opening is None:
            await self._send(protocol.Done(duration=0.0, segments=0))
            return
        start, audio = opening
        try:
            audio_format = AudioFormat(start.encoding, start.sample_rate, start.channels)
            settings = _settings(start)
        except ValueError as error:
            raise ProtocolError("invalid_value", str(error)) from None
        self._frame_bytes = audio_format.frame_bytes
        async with self._service.session(audio_format, settings) as live:
            info = self._service.info
            assert info is not None, "a session is open, so the engine is loaded"
            await self._send(
                protocol.Ready(
                    session=self.id,
                    model=info.name,
                    encoding=start.encoding,
                    sample_rate=start.sample_rate,
                    channels=start.channels,
                    language=settings.language,
                )
            )
            logger.info("session %s opened: %s", self.id, audio_format)
            try:
                await race(self._write(live, start.words), self._read(live, settings, audio))
            finally:
                logger.info(
                    "session %s closed: %.1f s, %d segments, %d errors",
                    self.id,
                    protocol.seconds(live.duration),
                    live.num_segments,
                    self._num_errors,
                )

    async def _open(self, parameters: dict[str, list[str]]) -> tuple[protocol.Start, bytes] | None:
        """Wait for what opens the session: the settings, and audio where that came first.

        None where the client ends before it began.
        """
        query = protocol.parse_query(parameters)
        await self._report_ignored(query.ignored)
        start = query.message
        assert isinstance(start, protocol.Start)
        if protocol.has_start(parameters):
            return start, b""
        try:
            async with asyncio.timeout(self._service.config.start_timeout_s):
                while True:
                    message = await self._connection.receive()
                    if isinstance(message, bytes):
                        if message:
                            return start, message
                        await self._report(_EMPTY)
                        continue
                    parsed = await self._parse(message)
                    match parsed:
                        case protocol.Start():
                            return parsed, b""
                        case protocol.End():
                            return None
                        case protocol.Update() | protocol.Finalize():
                            await self._report(
                                ProtocolError("not_started", "expected start or audio first")
                            )
        except TimeoutError:
            raise ProtocolError(
                "start_timeout",
                f"expected start or audio within {self._service.config.start_timeout_s:g} s",
            ) from None

    async def _read(self, live: LiveSession, settings: SessionSettings, audio: bytes) -> None:
        """Feed what the client sends until it goes; its end only ends the audio."""
        if audio:
            await self._feed(live, audio)
        while True:
            try:
                async with asyncio.timeout(self._service.config.idle_timeout_s):
                    message = await self._connection.receive()
            except TimeoutError:
                raise ProtocolError("idle", "expected a message, got none for too long") from None
            if isinstance(message, bytes):
                await self._feed(live, message)
                continue
            match await self._parse(message):
                case protocol.Start():
                    await self._report(
                        ProtocolError("already_started", "expected start once, as first message")
                    )
                case protocol.Update() as update:
                    settings = _updated(settings, update)
                    live.update(settings)
                case protocol.Finalize() if not self._is_ended:
                    await live.finalize()
                case protocol.Finalize():
                    await self._report(ProtocolError("already_ended", "expected nothing after end"))
                case protocol.End():
                    await self._end(live)

    async def _feed(self, live: LiveSession, data: bytes) -> None:
        if not data:
            await self._report(_EMPTY)
        elif self._is_ended:
            await self._report_once(ProtocolError("audio_after_end", "expected no audio after end"))
        else:
            self._num_bytes += len(data)
            try:
                await live.feed(data)
            except ValueError as error:
                raise ProtocolError("invalid_audio", str(error)) from None

    async def _end(self, live: LiveSession) -> None:
        if self._is_ended:
            await self._report(ProtocolError("already_ended", "expected end once"))
            return
        self._is_ended = True
        if odd := self._num_bytes % self._frame_bytes:
            await self._report(
                ProtocolError(
                    "odd_bytes",
                    f"expected a multiple of {self._frame_bytes} bytes of audio, "
                    f"got {self._num_bytes}; the last {odd} are left out",
                )
            )
        await live.end()

    async def _write(self, live: LiveSession, with_words: bool) -> None:
        """Send what the session says until all is said."""
        async for event in live.events():
            await self._send(protocol.from_event(event, 0, with_words=with_words))
        await self._send(
            protocol.Done(duration=protocol.seconds(live.duration), segments=live.num_segments)
        )

    async def _parse(self, text: str) -> protocol.ClientMessage | None:
        try:
            parsed = protocol.parse_client(text)
        except ProtocolError as error:
            await self._report(error)
            return None
        await self._report_ignored(parsed.ignored)
        return parsed.message

    async def _report_ignored(self, names: tuple[str, ...]) -> None:
        for name in names:
            await self._report_once(
                ProtocolError("unknown_field", "not a field of this message, ignored", field=name)
            )

    async def _report_once(self, error: ProtocolError) -> None:
        key = f"{error.code} {error.field}"
        if key not in self._reported:
            self._reported.add(key)
            await self._report(error)

    async def _report(self, error: ProtocolError) -> None:
        """Tell the client what was wrong; the session goes on unless it is too much."""
        if error.is_fatal:
            raise error
        self._num_errors += 1
        if self._num_errors > MAX_ERRORS:
            raise ProtocolError("too_many_errors", f"expected at most {MAX_ERRORS} errors")
        await self._send(protocol.Error(error.code, error.message, fatal=False, field=error.field))

    async def _fail(
        self,
        close_code: int,
        code: str,
        message: str,
        *,
        field: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        try:
            await self._send(
                protocol.Error(code, message, True, field=field, retry_after_s=retry_after_s)
            )
            await self._connection.close(close_code, code)
        except (Disconnected, SlowReader):
            logger.debug("session %s: gone before it could be told %s", self.id, code)

    async def _send(self, message: ServerMessage) -> None:
        message = dataclasses.replace(message, seq=self._seq)
        self._seq += 1
        await self._connection.send(protocol.encode(message))


_EMPTY = ProtocolError("empty_message", "expected audio, got a message of 0 bytes")


def _settings(start: protocol.Start) -> SessionSettings:
    return SessionSettings(
        language=_language(start.language),
        task=Task(start.task),
        prompt=start.prompt,
        hotwords=tuple(start.hotwords),
        word_times=start.words,
        partials=start.partials,
        delay=Delay(start.delay),
        endpointing=Endpointing(start.endpointing),
        silence_ms=start.silence_ms,
        pre_roll_ms=start.pre_roll_ms,
        max_segment_s=start.max_segment_s,
        vad_threshold=start.vad_threshold,
    )


def _updated(settings: SessionSettings, update: protocol.Update) -> SessionSettings:
    if update.language is not None:
        settings = dataclasses.replace(settings, language=_language(update.language))
    if update.prompt is not None:
        settings = dataclasses.replace(settings, prompt=update.prompt)
    if update.hotwords is not None:
        settings = dataclasses.replace(settings, hotwords=tuple(update.hotwords))
    return settings


def _language(name: str | None) -> str | None:
    return None if name in (None, "", "auto") else name
