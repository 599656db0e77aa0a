"""One stream of a telephone call: Twilio's messages in, text into the call's log."""

from __future__ import annotations

import asyncio
import logging

from engine.api import EngineError
from streamer import wire
from streamer.audio.error import AudioError
from streamer.protocols.twilio import messages as twilio
from streamer.protocols.twilio.call import CallLog, CallLogs
from streamer.protocols.twilio.jitter import ChunkOrder
from streamer.protocols.twilio.options import read_format, read_settings
from streamer.protocols.twilio.webhook import Webhook
from streamer.service import Service
from streamer.session.live import LiveSession
from streamer.transport.connection import (
    MAX_ERRORS,
    Connection,
    Disconnected,
    MessageTooBig,
    starting_within,
)
from streamer.transport.edge import Fault
from streamer.wire import ClientFault

logger = logging.getLogger(__name__)

SILENT_BYTES = {"mulaw": 0xFF, "alaw": 0xD5}  # the byte that is zero (ITU-T G.711)


class CallStream:
    """One stream of a call, from the accepted socket until its last word is out."""

    def __init__(self, service: Service, calls: CallLogs, connection: Connection) -> None:
        self._service = service
        self._calls = calls
        self._connection = connection
        self.name = "call"
        self._num_errors = 0
        self._num_unreadable = 0  # payloads that are not audio in base64
        self._failure: Exception | None = None  # what ended the audio before the call did

    async def run(self) -> None:
        start = await self._wait_for_start()
        if start is not None:
            self.name = f"stream {start.stream}"
            with self._calls.stream(start) as log:
                await self._transcribe(start, log)
        await self._connection.close(wire.CLOSE_NORMAL)

    async def fail(self, fault: Fault) -> None:
        # a carrier does not read why, but a developer does
        await self._connection.close(fault.close_code, fault.message)

    async def _wait_for_start(self) -> twilio.Start | None:
        """Return what opens the stream; None where it stops before."""
        async with starting_within(self._service.config.start_timeout_s, "start"):
            while True:
                match await self._receive():
                    case twilio.Start() as start:
                        return start
                    case twilio.Stop():
                        return None

    async def _transcribe(self, start: twilio.Start, log: CallLog) -> None:
        orders = [_order(start) for _ in start.tracks]
        try:
            audio_format = read_format(start)
            session = self._service.session(audio_format, read_settings(start))
            async with session as live, Webhook(self._service.config.call_webhook) as hook:
                logger.info("%s opened: %s", self.name, audio_format)
                reading = asyncio.create_task(self._read(start, live, orders))
                try:
                    async for event in live.events():
                        if (final := log.publish(event, start)) is not None:
                            hook.post(final)
                finally:
                    reading.cancel()
                    await asyncio.gather(reading, return_exceptions=True)
                if self._failure is not None:
                    raise self._failure
                values: dict[str, object] = {
                    "duration": wire.seconds(live.duration),
                    "segments": live.num_segments,
                    "lost_chunks": sum(order.num_lost for order in orders),
                    "late_chunks": sum(order.num_late for order in orders),
                    "unreadable_chunks": self._num_unreadable,
                }
                hook.post(log.append("done", start.stream, values))
                logger.info("%s closed: %s", self.name, values)
        except (EngineError, AudioError, ClientFault) as error:
            # ClientFault: a parameter of the TwiML that cannot be read, or is out of range
            field = error.field if isinstance(error, ClientFault) else None
            named = {} if field is None else {"field": field}
            code = "invalid_audio" if isinstance(error, AudioError) else "refused"
            log.append("error", start.stream, {"code": code, "message": str(error), **named})
            raise ClientFault(code, str(error), field=field, is_fatal=True) from error
        except Exception:
            # the edge logs it; without a word here readers would take the call for whole
            values = {"code": "internal", "message": "internal error"}
            log.append("error", start.stream, values)
            raise

    async def _read(self, start: twilio.Start, live: LiveSession, orders: list[ChunkOrder]) -> None:
        """Feed the call; its end, however it comes, only ends the audio.

        What went wrong is kept for `_transcribe`, which raises it once the text before it is out.
        """
        try:
            try:
                await self._feed(start, live, orders)
            except (Disconnected, MessageTooBig, ClientFault) as error:
                # a call that drops has still been spoken: what came is transcribed to its end
                logger.debug("%s broke off: %s", self.name, type(error).__name__)
            for channel, order in enumerate(orders):
                if rest := order.flush():
                    await live.feed(rest, channel)
        except Exception as error:
            self._failure = error
        finally:
            await live.end()

    async def _feed(self, start: twilio.Start, live: LiveSession, orders: list[ChunkOrder]) -> None:
        while True:
            message = await self._receive()
            if isinstance(message, twilio.Stop):
                return
            if isinstance(message, twilio.Media) and message.track in start.tracks:
                channel = start.tracks.index(message.track)
                audio = orders[channel].put(message.chunk, message.timestamp_ms, message.payload)
                if audio:
                    await live.feed(audio, channel)

    async def _receive(self) -> twilio.Message:
        """Wait for a message that reads; one that does not costs no call."""
        while True:
            message = await self._connection.receive()
            try:
                if isinstance(message, bytes):
                    raise ClientFault("binary", "expected text, got a binary message")
                return twilio.parse(message)
            except ClientFault as error:
                self._num_errors += 1
                if error.field == "media.payload":
                    self._num_unreadable += 1
                logger.debug("a message of a call was wrong: %s", error.code)
                if self._num_errors > MAX_ERRORS:
                    raise


def _order(start: twilio.Start) -> ChunkOrder:
    return ChunkOrder(max(1, start.sample_rate // 1000), SILENT_BYTES[start.encoding])
