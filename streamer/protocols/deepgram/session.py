"""One client of Deepgram's live API: its messages in, results out."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import logging

from engine.api import ModelInfo
from streamer import wire
from streamer.protocols.deepgram import messages
from streamer.protocols.deepgram.audio_input import DeepgramInput
from streamer.protocols.deepgram.http import timestamp
from streamer.protocols.deepgram.live_results import ResultsWriter
from streamer.protocols.deepgram.options import ListenOptions, parse_hotwords
from streamer.service import Service
from streamer.session.live import LiveSession
from streamer.transport.connection import MAX_ERRORS, Connection, Overdue, race
from streamer.transport.edge import Fault
from streamer.wire import ClientFault

logger = logging.getLogger(__name__)

DIGEST_BYTES = 1 << 20  # hashed before other tasks have a turn, some milliseconds

NO_AUDIO_REASON = "NET-0001: did not receive audio data or a text message within the timeout window"
NOT_AUDIO_CODE = "DATA-0000"


class ListenSession:
    """One client of the live API, from the accepted socket to the close."""

    def __init__(
        self,
        service: Service,
        connection: Connection,
        request_id: str,
        options: ListenOptions,
        audio: DeepgramInput,
        info: ModelInfo,
    ) -> None:
        self._service = service
        self._connection = connection
        self.name = f"listen {request_id}"
        self._id = request_id
        self._options = options
        self._audio = audio
        self._model = messages.describe_model(request_id, info)
        self._settings = options.settings
        self._sha256 = hashlib.sha256()
        self._is_ended = False  # no more audio is taken
        self._num_errors = 0
        # why the socket closes once everything is delivered
        self._close_code, self._close_reason = wire.CLOSE_NORMAL, ""

    async def run(self) -> None:
        async with self._audio:
            await self._transcribe()
        await self._connection.close(self._close_code, self._close_reason)

    async def fail(self, fault: Fault) -> None:
        code = NOT_AUDIO_CODE if fault.code == "invalid_audio" else fault.code
        await self._send(messages.Error(code, fault.message, code=code))
        await self._connection.close(fault.close_code, f"{code}: {fault.message}")

    async def _transcribe(self) -> None:
        audio_format = self._audio.format
        async with self._service.session(audio_format, self._settings) as live:
            logger.info("%s opened: %s", self.name, audio_format)
            results = ResultsWriter(self._options, self._model, audio_format.channels)
            try:
                await race(
                    self._write(live, results),
                    self._read(live, results),
                    self._connection.wait_lost(),
                )
            finally:
                duration = wire.seconds(live.duration)
                logger.info("%s closed: %.1f s", self.name, duration)

    async def _read(self, live: LiveSession, results: ResultsWriter) -> None:
        """Feed what the client sends until it goes; CloseStream only ends the audio."""
        while True:
            try:
                message = await self._connection.receive()
            except Overdue as error:
                # what was said is still delivered; the close says why no more is taken
                self._close_code, self._close_reason = wire.CLOSE_PROTOCOL_ERROR, error.message
                if error.code == "idle":
                    self._close_code, self._close_reason = wire.CLOSE_INTERNAL, NO_AUDIO_REASON
                await self._end(live)
                continue
            if isinstance(message, str):
                await self._control(message, live, results)
            elif not message:
                await self._end(live)  # an empty message closed the stream before CloseStream did
            elif not self._is_ended:
                await self._digest(message)
                await self._feed(message, live)
                await asyncio.sleep(0)  # what this audio led to is sent before what follows
                await self._send_all(results.advance(live.duration))

    async def _digest(self, data: bytes) -> None:
        for first in range(0, len(data), DIGEST_BYTES):
            if first:
                await asyncio.sleep(0)
            self._sha256.update(data[first : first + DIGEST_BYTES])

    async def _feed(self, data: bytes, live: LiveSession) -> None:
        async with contextlib.aclosing(self._audio.decode(data)) as pieces:
            async for piece in pieces:
                await live.feed(piece)

    async def _control(self, text: str, live: LiveSession, results: ResultsWriter) -> None:
        try:
            values = wire.parse_object(text)
            match values.get("type"):
                case "KeepAlive":
                    pass
                case "CloseStream":
                    await self._end(live)
                case "Finalize":
                    channel = read_channel(values.get("channel"), self._audio.format.channels)
                    if not self._is_ended:
                        await live.finalize(channel)
                        await self._flush(channel, live, results)
                case "Configure":
                    await self._configure(values.get("keyterms"), live)
                case other:
                    raise ClientFault(
                        "unknown_type",
                        "type: expected KeepAlive, Finalize, CloseStream or Configure, "
                        f"got {other!r:.40}",
                        field="type",
                    )
        except ClientFault as error:
            self._num_errors += 1
            if self._num_errors > MAX_ERRORS:
                raise
            await self._send(messages.Error("SchemaError", error.message, message=text[:200]))

    async def _flush(self, channel: int | None, live: LiveSession, results: ResultsWriter) -> None:
        channels = range(self._audio.format.channels) if channel is None else (channel,)
        for each in channels:
            answers = results.finalize(each, live.num_begun(each), live.duration)
            await self._send_all(answers)

    async def _configure(self, keyterms: object, live: LiveSession) -> None:
        terms = read_keyterms(keyterms)
        if terms is not None:
            self._settings = dataclasses.replace(self._settings, hotwords=parse_hotwords(terms))
            live.update(self._settings)
        await self._send(messages.ConfigureSuccess(self._id, terms))

    async def _end(self, live: LiveSession) -> None:
        if not self._is_ended:
            self._is_ended = True
            self._connection.lift_limits()
            async with contextlib.aclosing(self._audio.flush()) as pieces:
                async for piece in pieces:
                    await live.feed(piece)
            await live.end()

    async def _write(self, live: LiveSession, results: ResultsWriter) -> None:
        """Send the results of all audio, then the summary."""
        async for event in live.events():
            await self._send_all(results.translate(event))
        await self._send_all(results.close(live.duration))
        await self._send(
            messages.Metadata(
                transaction_key="deprecated",
                request_id=self._id,
                sha256=self._sha256.hexdigest(),
                created=timestamp(),
                duration=wire.seconds(live.duration),
                channels=self._audio.format.channels,
                warnings=messages.warn(self._options.ignored),
            )
        )

    async def _send_all(self, parts: list[messages.Message]) -> None:
        for part in parts:
            await self._send(part)

    async def _send(self, message: messages.Message) -> None:
        await self._connection.send(messages.encode(message))


def read_keyterms(value: object) -> list[str] | None:
    """Read the words of a Configure.

    Raises:
        ClientFault: it is no list of strings.
    """
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(term, str) for term in value):
        raise ClientFault("invalid_field", "keyterms: expected a list of strings", field="keyterms")
    return value


def read_channel(value: object, num_channels: int) -> int | None:
    """Read the channel of a Finalize; None is all of them.

    Raises:
        ClientFault: there is no such channel.
    """
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < num_channels:
        raise ClientFault(
            "invalid_field",
            f"channel: expected 0 to {num_channels - 1}, got {value!r:.40}",
            field="channel",
        )
    return value
