"""The Wyoming protocol of Home Assistant's voice assistants, over TCP.

An event is a line of JSON, then as many bytes of JSON data and of payload as the line announces.
docs/wyoming.md says what of it is served.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable

from engine.api import Engine
from streamer.config import ServerConfig
from streamer.protocols.wyoming.messages import WyomingEvent, encode
from streamer.protocols.wyoming.session import WyomingSession
from streamer.service import Service
from streamer.transport import edge

logger = logging.getLogger(__name__)

DEFAULT_PORT = 10300  # where Home Assistant looks for speech to text
BUSY = encode(WyomingEvent("error", {"text": "too many connections", "code": "busy"}))
MAX_LINE_BYTES = 64 * 1024  # StreamReader's own limit


@contextlib.asynccontextmanager
async def serve(
    load_engine: Callable[[], Engine], config: ServerConfig
) -> AsyncIterator[asyncio.Server]:
    """Listen on the configuration's host and port for as long as the context is open.

    Raises:
        ValueError: keys are configured; the protocol has no place for them.
        Exception: what the engine raised when it was loaded.
        OSError: the address is taken, or not this machine's.
    """
    if config.api_keys or config.api_key_file:
        raise ValueError(
            "expected no api_keys and no api_key_file: Wyoming's clients have no keys, and would "
            "all be let in"
        )
    service = Service(config, load_engine)
    addresses: Counter[str] = Counter()  # of open connections
    tasks: set[asyncio.Task[None]] = set()

    async def serve_client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        address = str((writer.get_extra_info("peername") or ("",))[0])
        most, most_of_one = config.max_connections, config.max_connections_per_address
        if len(tasks) >= most or 0 < most_of_one <= addresses[address]:
            service.metrics.refused("busy")
            writer.write(BUSY)
            writer.close()
            return
        tasks.add(task)
        addresses[address] += 1
        try:
            session = WyomingSession(service, reader, writer)
            try:
                await edge.serve(session, session.close)
            finally:
                await session.close()
        except asyncio.CancelledError:
            logger.debug("a connection is broken off: the server stops")  # nobody awaits this task
        finally:
            tasks.discard(task)
            addresses[address] -= 1
            if not addresses[address]:
                del addresses[address]

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
