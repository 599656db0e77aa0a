"""A service that runs on a free port, for clients that know nothing of the tests.

Its engine is real where a test asks for it; else it is `CountingEngine`, which names each half
second of audio that is not silent, so that texts and times are known in advance.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from engine.api import Engine
from streamer.app import create_app
from streamer.config import ServerConfig
from streamer.service import Service
from streamer.transport.server_process import Server, listen
from tests.support.engines import CountingEngine

CONFIG = ServerConfig(port=0, drain_timeout_s=2.0, calibrate=False)


@dataclass(frozen=True, slots=True)
class Running:
    """Where a service listens."""

    host: str
    port: int
    service: Service

    @property
    def http(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def ws(self) -> str:
        return f"ws://{self.host}:{self.port}"

    async def wait_heard(self, seconds: float) -> None:
        """Return once sessions have taken that much audio; what is cut off then is not theirs."""
        async with asyncio.timeout(30):
            while self.service.metrics.totals()["audio_seconds"] < seconds - 0.001:
                await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def loaded_service(config: ServerConfig | None = None) -> AsyncIterator[Service]:
    """Run a service without a socket; it is loaded."""
    found = Service(config or ServerConfig(), CountingEngine)
    async with found.run():
        await found.wait_loaded()
        yield found


@contextlib.asynccontextmanager
async def running(
    load_engine: Callable[[], Engine] = CountingEngine, config: ServerConfig = CONFIG
) -> AsyncIterator[Running]:
    """Serve on a free port for as long as the context is open."""
    app = create_app(load_engine, config)
    service: Service = app.state.service
    listener = listen(config)
    server = Server(app, service, config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        await service.wait_loaded()
        if service.failure is not None:
            raise service.failure
        while not server.started:
            await asyncio.sleep(0.01)
        host, port = listener.getsockname()[:2]
        yield Running(host, port, service)
    finally:
        server.should_exit = True
        await serving


def free_port() -> int:
    """Find a port that no other process is given by chance while no service listens there."""
    draw = random.Random()
    while True:
        port = draw.randrange(20_000, 32_000)  # below those of outgoing connections and of port 0
        with contextlib.suppress(OSError), socket.socket() as found:
            found.bind(("127.0.0.1", port))
            return port
