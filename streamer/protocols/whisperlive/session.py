"""One client of WhisperLive: its options and audio in, segments out."""

from __future__ import annotations

import logging

import numpy as np

from streamer import wire
from streamer.access.refusal import RETRY_AFTER_S
from streamer.protocols.whisperlive.messages import BACKEND, END_OF_AUDIO, SegmentsWriter
from streamer.protocols.whisperlive.options import Hello, parse_hello
from streamer.service import Service
from streamer.session.live import LiveSession
from streamer.transport.connection import Connection, Overdue, race, starting_within
from streamer.transport.edge import Fault
from streamer.wire import ClientFault

logger = logging.getLogger(__name__)

PIECE_BYTES = 1 << 20  # of 8-bit samples, converted at once


class WhisperLiveSession:
    """One client, from the accepted socket to the close."""

    name = "whisperlive session"

    def __init__(self, service: Service, connection: Connection) -> None:
        self._service = service
        self._connection = connection
        self._writer = SegmentsWriter(Hello())
        self._is_ended = False  # the client said that no more audio comes

    async def run(self) -> None:
        await self._transcribe(await self._receive_hello())
        await self._connection.close(wire.CLOSE_NORMAL)

    async def fail(self, fault: Fault) -> None:
        if fault.close_code == wire.CLOSE_BUSY:
            await self._wait(fault.retry_after_s or RETRY_AFTER_S)
            return
        await self._send(status="ERROR", message=fault.message)
        await self._connection.close(fault.close_code, fault.message)

    async def _wait(self, retry_after_s: float) -> None:
        """Ask the client to come back in so many minutes: it knows no HTTP refusal."""
        await self._send(status="WAIT", message=retry_after_s / 60)
        await self._connection.close(wire.CLOSE_NORMAL)

    async def _transcribe(self, hello: Hello) -> None:
        self._writer = SegmentsWriter(hello)
        settings, audio_format = hello.settings, hello.format
        if (refusal := self._service.refusal()) is not None:
            await self._wait(refusal.retry_after_s or RETRY_AFTER_S)
            return
        async with self._service.session(audio_format, settings) as live:
            logger.info("whisperlive session opened: %s", audio_format)
            await self._send(message="SERVER_READY", backend=BACKEND)
            for warning in hello.warnings:
                await self._send(status="WARNING", message=warning)
            try:
                await race(self._write(live), self._read(live, hello), self._connection.wait_lost())
            finally:
                duration = wire.seconds(live.duration)
                logger.info("whisperlive session closed: %.1f s", duration)
            if not self._is_ended:
                await self._send(message="DISCONNECT")

    async def _receive_hello(self) -> Hello:
        async with starting_within(self._service.config.start_timeout_s, "options"):
            message = await self._connection.receive()
        if isinstance(message, bytes):
            raise ClientFault("not_started", "expected options as JSON first, got audio")
        return parse_hello(message)

    async def _read(self, live: LiveSession, hello: Hello) -> None:
        """Feed what the client sends until it goes; END_OF_AUDIO only ends the audio."""
        has_audio = True  # until it ends, by the client or by a limit of time
        while True:
            try:
                message = await self._connection.receive()
            except Overdue:
                has_audio = False
                await self._end(live)  # what was said is still delivered; DISCONNECT follows it
                continue
            if message in (END_OF_AUDIO, END_OF_AUDIO.decode()):
                has_audio, self._is_ended = False, True
                await self._end(live)
            elif isinstance(message, str):
                await self._send(status="WARNING", message="expected audio, got text")
            elif message and has_audio:
                await self._feed(message, hello, live)

    async def _feed(self, data: bytes, hello: Hello, live: LiveSession) -> None:
        if hello.audio_format != "uint8":
            await live.feed(data)
            return
        for first in range(0, len(data), PIECE_BYTES):
            await live.feed(_widen(data[first : first + PIECE_BYTES]))

    async def _end(self, live: LiveSession) -> None:
        self._connection.lift_limits()
        await live.end()

    async def _write(self, live: LiveSession) -> None:
        async for event in live.events():
            for text in self._writer.translate(event):
                await self._connection.send(text)

    async def _send(self, **values: object) -> None:
        await self._connection.send(self._writer.message(**values))


def _widen(data: bytes) -> bytes:
    """Turn unsigned 8-bit samples, 128 for silence, into 16 bits."""
    samples = (np.frombuffer(data, np.uint8).astype(np.int16) - 128) << 8
    return samples.astype("<i2").tobytes()
