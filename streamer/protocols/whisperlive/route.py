"""WhisperLive's protocol, where its clients look for it (`/`) and at `/v1/whisperlive`.

docs/whisperlive.md says what of it is served.
"""

from __future__ import annotations

import asyncio
import functools
import logging

import numpy as np
from starlette.routing import BaseRoute, WebSocketRoute
from starlette.websockets import WebSocket

from engine.api import EngineBusy, InvalidRequest
from streamer import wire
from streamer.access.refusal import RETRY_AFTER_S
from streamer.protocols.whisperlive.messages import (
    BACKEND,
    END_OF_AUDIO,
    Hello,
    SegmentsWriter,
    parse_hello,
)
from streamer.service import Service
from streamer.session.live import LiveSession
from streamer.transport.connection import (
    Connection,
    Disconnected,
    MessageTooBig,
    SlowReader,
    accept,
    race,
)
from streamer.wire import ClientFault

logger = logging.getLogger(__name__)

PATHS = ("/v1/whisperlive", "/")


def routes(service: Service) -> list[BaseRoute]:
    """Serve WhisperLive's clients; the page keeps `/` over HTTP."""
    endpoint = functools.partial(_serve, service)
    return [WebSocketRoute(path, endpoint) for path in PATHS]


async def _serve(service: Service, websocket: WebSocket) -> None:
    await WhisperLiveSession(service, await accept(websocket, service.config)).run()


class WhisperLiveSession:
    """One client, from the accepted socket to the close."""

    def __init__(self, service: Service, connection: Connection) -> None:
        self._service = service
        self._connection = connection
        self._writer = SegmentsWriter(Hello())
        self._is_ended = False  # the client said that no more audio comes

    async def run(self) -> None:
        """Serve the client; never raise for what it does."""
        try:
            await self._run()
            await self._connection.close(wire.CLOSE_NORMAL)
        except Disconnected:
            logger.debug("a client is gone")
        except SlowReader:
            logger.info("a client that does not read is dropped")
            await self._connection.close(wire.CLOSE_PROTOCOL_ERROR, "slow reader")
        except MessageTooBig as error:
            await self._fail(wire.CLOSE_TOO_BIG, str(error))
        except ClientFault as error:
            await self._fail(wire.CLOSE_PROTOCOL_ERROR, error.message)
        except (InvalidRequest, ValueError) as error:
            await self._fail(wire.CLOSE_PROTOCOL_ERROR, str(error))
        except EngineBusy:
            await self._wait(RETRY_AFTER_S)
        except Exception:
            logger.exception("a session failed")
            await self._fail(wire.CLOSE_INTERNAL, "internal error")

    async def _run(self) -> None:
        hello = await self._receive_hello()
        self._writer = SegmentsWriter(hello)
        settings, audio_format = hello.settings, hello.format
        # its clients know no HTTP refusal: a full server asks them to wait
        if (refusal := self._service.refusal()) is not None:
            await self._wait(refusal.retry_after_s or RETRY_AFTER_S)
            return
        async with self._service.session(audio_format, settings) as live:
            logger.info("whisperlive session opened: %s", audio_format)
            await self._send(message="SERVER_READY", backend=BACKEND)
            for warning in hello.warnings:
                await self._send(status="WARNING", message=warning)
            try:
                await race(self._write(live), self._read(live, hello))
            finally:
                duration = wire.seconds(live.duration)
                logger.info("whisperlive session closed: %.1f s", duration)
            if not self._is_ended:
                await self._send(message="DISCONNECT")

    async def _receive_hello(self) -> Hello:
        try:
            async with asyncio.timeout(self._service.config.start_timeout_s):
                message = await self._connection.receive()
        except TimeoutError:
            raise ClientFault("start_timeout", "expected options, got nothing") from None
        if isinstance(message, bytes):
            raise ClientFault("not_started", "expected options as JSON first, got audio")
        return parse_hello(message)

    async def _read(self, live: LiveSession, hello: Hello) -> None:
        """StepInput what the client sends until it goes; END_OF_AUDIO only ends the audio."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + self._service.config.max_session_s
        has_sound = True  # until it ends, by the client or by a limit of time
        while True:
            wait_s = min(self._service.config.idle_timeout_s, ends_at - loop.time())
            try:
                async with asyncio.timeout(max(0.0, wait_s) if has_sound else None):
                    message = await self._connection.receive()
            except TimeoutError:
                has_sound = False
                await live.end()  # what was said is still delivered; DISCONNECT follows it
                continue
            if message in (END_OF_AUDIO, END_OF_AUDIO.decode()):
                has_sound, self._is_ended = False, True
                await live.end()
            elif isinstance(message, str):
                await self._send(status="WARNING", message="expected audio, got text")
            elif message and has_sound:
                await live.feed(_widen(message) if hello.audio_format == "uint8" else message)

    async def _write(self, live: LiveSession) -> None:
        async for event in live.events():
            for text in self._writer.translate(event):
                await self._connection.send(text)

    async def _send(self, **values: object) -> None:
        await self._connection.send(self._writer.message(**values))

    async def _wait(self, retry_after_s: float) -> None:
        await self._tell(status="WAIT", message=retry_after_s / 60)
        await self._connection.close(wire.CLOSE_NORMAL)

    async def _fail(self, close_code: int, text: str) -> None:
        await self._tell(status="ERROR", message=text)
        await self._connection.close(close_code, text)

    async def _tell(self, **values: object) -> None:
        try:
            await self._send(**values)
        except (Disconnected, SlowReader):
            logger.debug("a client was gone before it could be told")


def _widen(data: bytes) -> bytes:
    """Turn unsigned 8-bit samples, 128 for silence, into 16 bits."""
    samples = (np.frombuffer(data, np.uint8).astype(np.int16) - 128) << 8
    return samples.astype("<i2").tobytes()
