"""One Wyoming client: its events in, transcripts out."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping

from engine.api import EngineError
from streamer import schema, wire
from streamer.audio.error import AudioError, UndeclaredAudio
from streamer.protocols.wyoming.messages import Audio, Transcribe, WyomingEvent, describe, encode
from streamer.service import Service
from streamer.session.live import LiveSession
from streamer.transcription import events
from streamer.transcription.word import follow
from streamer.transport.connection import Disconnected, SlowReader
from streamer.transport.edge import Fault
from streamer.wire import ClientFault, parse_object

MAX_DATA_BYTES = 64 * 1024
# each of the connections may hold one; clients send a tenth of a second or less at a time
MAX_PAYLOAD_BYTES = 2**20


async def read_event(reader: asyncio.StreamReader, max_payload: int) -> WyomingEvent | None:
    """Read an event; None at the end of the connection.

    Raises:
        ClientFault: fatal; what comes cannot be told apart from here on.
    """
    try:
        line = await reader.readline()
        if not line.strip():
            return None
        head = parse_object(line.decode())
        kind, data = head.get("type"), head.get("data") or {}
        if not isinstance(kind, str) or not isinstance(data, dict):
            raise ClientFault("invalid_event", "expected type and data", is_fatal=True)
        if size := _length(head, "data_length", MAX_DATA_BYTES):
            data = {**data, **parse_object((await reader.readexactly(size)).decode())}
        size = _length(head, "payload_length", max_payload)
        return WyomingEvent(kind, data, await reader.readexactly(size))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    except ValueError as error:  # a line too long, or no UTF-8
        raise ClientFault("invalid_event", str(error), is_fatal=True) from None


def _length(head: Mapping[str, object], name: str, limit: int) -> int:
    value = head.get(name) or 0
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= limit:
        raise ClientFault(
            "invalid_event",
            f"{name}: expected 0 to {limit}, got {schema.quote(value)}",
            is_fatal=True,
        )
    return value


class WyomingSession:
    """One client: any number of utterances, one after the other."""

    name = "wyoming session"

    def __init__(
        self, service: Service, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._service = service
        self._reader = reader
        self._writer = writer
        self._options = Transcribe()
        # the event that is read; it outlives an utterance that fails, or half of it would be lost
        self._reading: asyncio.Task[WyomingEvent | None] | None = None

    async def run(self) -> None:
        try:
            await self._serve()
        finally:
            if self._reading is not None:
                self._reading.cancel()
                await asyncio.gather(self._reading, return_exceptions=True)

    async def _serve(self) -> None:
        while (event := await self._read()) is not None:
            try:
                await self._answer(event)
            except UndeclaredAudio:
                raise  # the rest of it would open utterances of its own
            except (ClientFault, AudioError, EngineError, schema.FieldError) as error:
                if isinstance(error, ClientFault) and error.is_fatal:
                    raise
                code = error.code if isinstance(error, ClientFault) else "refused"
                await self._send(WyomingEvent("error", {"text": str(error), "code": code}))

    async def fail(self, fault: Fault) -> None:
        await self._send(WyomingEvent("error", {"text": fault.message, "code": fault.code}))

    async def close(self, code: int = wire.CLOSE_NORMAL, reason: str = "") -> None:
        """Send what waits, then close; TCP has no place for a code or a reason."""
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()

    async def _answer(self, event: WyomingEvent) -> None:
        match event.type:
            case "describe":
                info = self._service.info
                assert info is not None, "connections are taken once the model is loaded"
                await self._send(describe(info))
            case "ping":
                await self._send(WyomingEvent("pong", event.data))
            case "transcribe":
                self._options, _ = schema.build(Transcribe, event.data)
            case "audio-start" | "audio-chunk":
                await self._transcribe(event)
            case "audio-stop":
                # of no audio; whoever sent it waits for a transcript all the same
                self._options = Transcribe()
                await self._send_transcript("", "")
        # other events are of other domains

    async def _transcribe(self, first: WyomingEvent) -> None:
        audio, _ = schema.build(Audio, first.data)
        options, self._options = self._options, Transcribe()
        async with self._service.session(audio.format, options.settings) as live:
            speaking = asyncio.create_task(self._speak(live))
            try:
                event: WyomingEvent | None = first
                while event is not None and event.type != "audio-stop":
                    if event.type == "audio-chunk" and event.payload:
                        await live.feed(event.payload)
                    event = await self._read(speaking)
                await live.end()
                await speaking
            finally:
                speaking.cancel()
                await asyncio.gather(speaking, return_exceptions=True)

    async def _speak(self, live: LiveSession) -> None:
        text, language = "", ""
        async for event in live.events():
            if isinstance(event, events.Final) and event.text:
                if not text:
                    await self._send(WyomingEvent("transcript-start", {"language": event.language}))
                chunk = follow(text, event.text)
                text, language = text + chunk, event.language
                await self._send(WyomingEvent("transcript-chunk", {"text": chunk}))
        await self._send_transcript(text, language)

    async def _send_transcript(self, text: str, language: str) -> None:
        """Send what ends an utterance."""
        if not text:
            await self._send(WyomingEvent("transcript-start"))
        named = {"language": language} if language else {}
        await self._send(WyomingEvent("transcript", {"text": text, **named}))
        await self._send(WyomingEvent("transcript-stop"))

    async def _read(self, speaking: asyncio.Task[None] | None = None) -> WyomingEvent | None:
        """Wait for the next event; raise at once what goes wrong with the answer meanwhile."""
        config = self._service.config
        if self._reading is None:
            max_payload = min(config.max_message_bytes, MAX_PAYLOAD_BYTES)
            self._reading = asyncio.create_task(read_event(self._reader, max_payload))
        while not self._reading.done():
            waited: set[asyncio.Task[WyomingEvent | None] | asyncio.Task[None]] = {self._reading}
            if speaking is not None and not speaking.done():
                waited.add(speaking)
            done, _ = await asyncio.wait(
                waited, timeout=config.idle_timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
            if not done:
                raise Disconnected
            if speaking is not None and speaking.done():
                speaking.result()
        reading, self._reading = self._reading, None
        return reading.result()

    async def _send(self, event: WyomingEvent) -> None:
        self._writer.write(encode(event))
        try:
            async with asyncio.timeout(self._service.config.send_timeout_s):
                await self._writer.drain()
        except TimeoutError:
            raise SlowReader from None
        except ConnectionError:
            raise Disconnected from None
