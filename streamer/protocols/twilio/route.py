"""`/v1/twilio`: a telephone call comes in; `/v1/calls/{callSid}`: its text goes out.

docs/twilio.md says what of Twilio Media Streams is served.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging

from starlette.routing import BaseRoute, WebSocketRoute
from starlette.websockets import WebSocket

from engine.api import EngineError, Task
from streamer import wire
from streamer.audio.pcm import AudioFormat
from streamer.protocols.twilio import messages as twilio
from streamer.protocols.twilio.call import CallLog, CallLogs
from streamer.protocols.twilio.jitter import ChunkOrder
from streamer.protocols.twilio.webhook import Webhook
from streamer.service import Service
from streamer.session.live import LiveSession
from streamer.transcription.settings import Delay, SessionSettings
from streamer.transport.connection import (
    MAX_ERRORS,
    Connection,
    Disconnected,
    MessageTooBig,
    SlowReader,
    accept,
    race,
    refuse,
)
from streamer.wire import ClientFault

logger = logging.getLogger(__name__)

SILENCE = {"mulaw": 0xFF, "alaw": 0xD5}  # the byte that is zero (ITU-T G.711)


def routes(service: Service) -> list[BaseRoute]:
    """Serve calls and those who listen in to them."""
    config = service.config
    calls = CallLogs(config.call_grace_s, config.max_calls)
    return [
        WebSocketRoute("/v1/twilio", functools.partial(_serve_call, service, calls)),
        WebSocketRoute("/v1/calls/{call}", functools.partial(_serve_reader, service, calls)),
    ]


async def _serve_call(service: Service, calls: CallLogs, websocket: WebSocket) -> None:
    if (refusal := service.refusal()) is not None:
        await refuse(websocket, refusal)
        return
    await CallStream(service, calls, await accept(websocket, service.config)).run()


async def _serve_reader(service: Service, calls: CallLogs, websocket: WebSocket) -> None:
    query = websocket.query_params
    after = query.get("after", "0")
    position = int(after) if after.isascii() and after.isdigit() and len(after) < 18 else 0
    with_partials = query.get("partials", "true") != "false"
    connection = await accept(websocket, service.config)
    with calls.reader(websocket.path_params["call"]) as log:
        try:
            if log is None:
                await connection.close(wire.CLOSE_BUSY, "too many calls are waited for")
                return
            await race(
                _read_along(log, connection, position, with_partials=with_partials),
                _wait_for_close(connection),
                _give_up(log, calls.grace_s),
            )
            await connection.close(wire.CLOSE_NORMAL)
        except (Disconnected, MessageTooBig):
            logger.debug("a reader of a call is gone")
        except SlowReader:
            await connection.close(wire.CLOSE_PROTOCOL_ERROR, "slow reader")
        except TimeoutError:
            await connection.close(wire.CLOSE_PROTOCOL_ERROR, "no such call")


async def _read_along(
    log: CallLog, connection: Connection, after: int, *, with_partials: bool
) -> None:
    await connection.send(log.describe())
    async with contextlib.aclosing(log.follow(after, with_partials=with_partials)) as messages:
        async for text in messages:
            await connection.send(text)


async def _wait_for_close(connection: Connection) -> None:
    while True:
        await connection.receive()  # readers have nothing to say


async def _give_up(log: CallLog, grace_s: float) -> None:
    """Raise TimeoutError where no call begins in time."""
    await asyncio.sleep(grace_s)
    if log.state == "waiting":
        raise TimeoutError
    await asyncio.Event().wait()


class CallStream:
    """One stream of a call, from the accepted socket until its last word is out."""

    def __init__(self, service: Service, calls: CallLogs, connection: Connection) -> None:
        self._service = service
        self._calls = calls
        self._connection = connection
        self._num_errors = 0
        self._refusal: ValueError | None = None  # of sound that is not what its start declared
        # how the socket closes; a carrier does not read why, but a developer does
        self._close_code, self._close_reason = wire.CLOSE_NORMAL, ""

    async def run(self) -> None:
        """Serve the carrier; never raise for what it does."""
        try:
            start = await self._wait_for_start()
            if start is not None:
                with self._calls.stream(start) as log:
                    await self._transcribe(start, log)
        except Disconnected:
            logger.debug("a call ended before it began")
        except ClientFault as error:
            self._close_code, self._close_reason = wire.CLOSE_PROTOCOL_ERROR, error.message
        except MessageTooBig as error:
            self._close_code, self._close_reason = wire.CLOSE_TOO_BIG, str(error)
        except Exception:
            logger.exception("a call failed")
            self._close_code, self._close_reason = wire.CLOSE_INTERNAL, "internal"
        await self._connection.close(self._close_code, self._close_reason)

    async def _wait_for_start(self) -> twilio.Start | None:
        """Return what opens the stream; None where it stops before."""
        try:
            async with asyncio.timeout(self._service.config.start_timeout_s):
                while True:
                    match await self._receive():
                        case twilio.Start() as start:
                            return start
                        case twilio.Stop():
                            return None
        except TimeoutError:
            raise ClientFault("start_timeout", "expected start, got nothing") from None

    async def _transcribe(self, start: twilio.Start, log: CallLog) -> None:
        orders = [_order(start) for _ in start.tracks]
        audio_format = AudioFormat(start.encoding, start.sample_rate, len(start.tracks))
        try:
            session = self._service.session(audio_format, _settings(start))
            async with session as live, Webhook(self._service.config.call_webhook) as hook:
                logger.info("stream %s opened: %s", start.stream, audio_format)
                reading = asyncio.create_task(self._read(start, live, orders))
                try:
                    async for event in live.events():
                        if (final := log.publish(event, start)) is not None:
                            hook.post(final)
                finally:
                    reading.cancel()
                    await asyncio.gather(reading, return_exceptions=True)
                if self._refusal is not None:
                    raise self._refusal
                values: dict[str, object] = {
                    "duration": wire.seconds(live.duration),
                    "segments": live.num_segments,
                    "lost_chunks": sum(order.num_lost for order in orders),
                    "late_chunks": sum(order.num_late for order in orders),
                }
                hook.post(log.append("done", start.stream, values))
                logger.info("stream %s closed: %s", start.stream, values)
        except (EngineError, ValueError) as error:
            log.append("error", start.stream, {"code": "refused", "message": str(error)})
            raise ClientFault("refused", str(error), is_fatal=True) from error

    async def _read(self, start: twilio.Start, live: LiveSession, orders: list[ChunkOrder]) -> None:
        """StepInput the call; its end, however it comes, only ends the sound."""
        try:
            while True:
                async with asyncio.timeout(self._service.config.idle_timeout_s):
                    message = await self._receive()
                if isinstance(message, twilio.Stop):
                    return
                if isinstance(message, twilio.Media) and message.track in start.tracks:
                    channel = start.tracks.index(message.track)
                    sound = orders[channel].put(
                        message.chunk, message.timestamp_ms, message.payload
                    )
                    if sound:
                        await live.feed(sound, channel)
        except ValueError as error:
            self._refusal = error
        except (Disconnected, MessageTooBig, ClientFault, TimeoutError) as error:
            # a call that drops has still been spoken: what came is transcribed to its end
            logger.debug("stream %s broke off: %s", start.stream, type(error).__name__)
        finally:
            for channel, order in enumerate(orders):
                if rest := order.flush():
                    await live.feed(rest, channel)
            await live.end()

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
                logger.debug("a message of a call was wrong: %s", error.code)
                if self._num_errors > MAX_ERRORS:
                    raise


def _order(start: twilio.Start) -> ChunkOrder:
    return ChunkOrder(max(1, start.sample_rate // 1000), SILENCE[start.encoding])


def _settings(start: twilio.Start) -> SessionSettings:
    """Read the parameters that the TwiML gave to the stream.

    Raises:
        ValueError: a value is not one that a session takes.
    """
    given = start.parameters
    language = given.get("language", "")
    hotwords = (word.strip() for word in given.get("hotwords", "").split(","))
    return SessionSettings(
        language=None if language in ("", "auto") else language.split("-")[0].lower(),
        task=Task(given.get("task", "transcribe")),
        prompt=given.get("prompt", ""),
        hotwords=tuple(word for word in hotwords if word),
        word_times=True,
        delay=Delay(given.get("delay", SessionSettings().delay.value)),
        silence_ms=int(given.get("silence_ms", SessionSettings().silence_ms)),
    )
