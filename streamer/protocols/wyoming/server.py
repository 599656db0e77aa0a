"""The Wyoming protocol of Home Assistant's voice assistants, over TCP.

An event is a line of JSON, then as many bytes of JSON data and of payload as the line announces.
docs/wyoming.md says what of it is served.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import AsyncIterator, Callable, Mapping

from engine.api import Engine, EngineError
from streamer import schema
from streamer.config import ServerConfig
from streamer.protocols.wyoming.messages import Audio, Transcribe, WyomingEvent, describe, encode
from streamer.service import Service
from streamer.session.live import LiveSession
from streamer.transcription import events
from streamer.transcription.word import follow
from streamer.wire import ClientFault, parse_object

logger = logging.getLogger(__name__)

DEFAULT_PORT = 10300  # where Home Assistant looks for speech to text
MAX_LINE_BYTES = 64 * 1024  # StreamReader's own limit
MAX_DATA_BYTES = 64 * 1024


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


class WyomingConnection:
    """One client: any number of utterances, one after the other."""

    def __init__(
        self, service: Service, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._service = service
        self._reader = reader
        self._writer = writer
        self._options = Transcribe()

    async def run(self) -> None:
        """Serve the client; never raise for what it does."""
        try:
            while (event := await self._read()) is not None:
                try:
                    await self._answer(event)
                except (ClientFault, EngineError, ValueError) as error:
                    # ValueError: a field of the wrong type, a WAV header of another format
                    if isinstance(error, ClientFault) and error.is_fatal:
                        raise
                    code = error.code if isinstance(error, ClientFault) else "refused"
                    await self._send(WyomingEvent("error", {"text": str(error), "code": code}))
        except ClientFault as error:
            with contextlib.suppress(ConnectionError):
                await self._send(WyomingEvent("error", {"text": error.message, "code": error.code}))
        except (ConnectionError, TimeoutError):
            logger.debug("a wyoming client is gone")
        except Exception:
            logger.exception("a wyoming connection failed")
        finally:
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
        # other events are of other domains, and audio-stop without audio says nothing

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
                    event = await self._read()
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
        if not text:
            await self._send(WyomingEvent("transcript-start"))
        named = {"language": language} if language else {}
        await self._send(WyomingEvent("transcript", {"text": text, **named}))
        await self._send(WyomingEvent("transcript-stop"))

    async def _read(self) -> WyomingEvent | None:
        async with asyncio.timeout(self._service.config.idle_timeout_s):
            return await read_event(self._reader, self._service.config.max_message_bytes)

    async def _send(self, event: WyomingEvent) -> None:
        self._writer.write(encode(event))
        async with asyncio.timeout(self._service.config.send_timeout_s):
            await self._writer.drain()


@contextlib.asynccontextmanager
async def serve(
    load_engine: Callable[[], Engine], config: ServerConfig
) -> AsyncIterator[asyncio.Server]:
    """Listen on the configuration's host and port for as long as the context is open.

    Raises:
        Exception: what the engine raised when it was loaded.
        OSError: the address is taken, or not this machine's.
    """
    service = Service(config, load_engine)
    tasks: set[asyncio.Task[None]] = set()

    async def serve_client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await WyomingConnection(service, reader, writer).run()
        except asyncio.CancelledError:
            logger.debug("a connection is broken off: the server stops")  # nobody awaits this task
        finally:
            tasks.discard(task)

    async with service.run():
        await service.wait_loaded()
        if service.failure is not None:
            raise service.failure
        server = await asyncio.start_server(
            serve_client, config.host, config.port, limit=MAX_LINE_BYTES
        )
        try:
            yield server
        finally:
            server.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def run(
    load_engine: Callable[[], Engine], config: ServerConfig, on_start: Callable[[str], None]
) -> None:
    """Serve until the process is asked to stop.

    Args:
        on_start: is told the address once the server listens.
    """
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    async with serve(load_engine, config) as server:
        host, port = server.sockets[0].getsockname()[:2]
        on_start(f"{host}:{port}")
        await stopped.wait()
