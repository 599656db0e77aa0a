"""The listening process: its socket, its signals, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import Callable, Generator

import uvicorn
from starlette.types import ASGIApp

from streamer.config import ServerConfig
from streamer.service import Service
from streamer.transport.tcp_limits import guard, guard_socket

logger = logging.getLogger(__name__)

# a frame beyond this is cut off by the socket itself (1009); up to it, the protocol says why
MAX_FRAME_BYTES = 32 * 2**20
PING_INTERVAL_S = 20.0  # proxies drop what is quiet for 30 to 60 s
# A peer that acknowledges nothing for this long is gone. Pongs cannot tell: they wait behind the
# audio of a client that sends faster than it is transcribed.
PEER_TIMEOUT_MS = 60_000
BACKLOG = 1024  # connections that wait to be accepted: a storm of returning clients
CLOSE_GRACE_S = 1.0  # for the closing handshakes, after the sessions are done


# uvicorn logs these as errors, the second with a traceback; both are the clients' doing
_NOISE = (
    "ASGI callable returned without completing handshake.",  # after a refusal, which is complete
    "Invalid UTF-8 sequence received from client.",
)


def quiet_uvicorn() -> None:
    """Keep uvicorn's log to what an operator needs; call it once, where logging is set up.

    Its lines about accepted sockets name full addresses, and a key may stand in an address.
    """
    log = logging.getLogger("uvicorn.error")
    log.setLevel(logging.WARNING)
    log.addFilter(lambda record: record.msg not in _NOISE)


def listen(config: ServerConfig) -> socket.socket:
    """Bind the listening socket.

    Raises:
        OSError: the address is taken, or not this machine's.
    """
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux; accepted sockets inherit it
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, PEER_TIMEOUT_MS)
        listener.bind((config.host, config.port))
        # from here on clients wait instead of being turned away, while the application is set up
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


class Server(uvicorn.Server):
    """A uvicorn server that lets its sessions finish before it stops.

    The first SIGINT or SIGTERM drains the service and ends with exit code 0; a second one ends the
    process at once.
    """

    def __init__(
        self,
        app: ASGIApp,
        service: Service,
        config: ServerConfig,
        *,
        on_start: Callable[[], None] | None = None,
    ) -> None:
        """Set up.

        Args:
            on_start: called once requests are answered and signals are handled; the model may
                still be loading.
        """
        super().__init__(
            uvicorn.Config(
                app,
                http=guard(config.max_connections, config.request_timeout_s),
                ws=guard_socket(
                    config.request_timeout_s,
                    lambda status: service.metrics.refused(str(status)),
                ),
                ws_max_size=MAX_FRAME_BYTES,
                ws_ping_interval=PING_INTERVAL_S,
                ws_ping_timeout=None,
                # audio does not compress, and the windows would cost 100 kB a client
                ws_per_message_deflate=False,
                proxy_headers=bool(config.trusted_proxies),
                forwarded_allow_ips=list(config.trusted_proxies),
                root_path=config.root_path,
                server_header=False,
                access_log=False,
                log_config=None,
                ssl_certfile=config.tls_certificate or None,
                ssl_keyfile=config.tls_key or None,
                timeout_graceful_shutdown=max(1, round(CLOSE_GRACE_S)),
            )
        )
        self._service = service
        self._drain_timeout_s = config.drain_timeout_s
        self._on_start = on_start

    async def main_loop(self) -> None:
        """Run until a signal comes or the engine turns out not to load."""
        if self._on_start is not None:
            self._on_start()
        while not self.should_exit and self._service.failure is None:
            await self.on_tick(0)
            await asyncio.sleep(0.1)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no new connections, let the sessions finish, then close the rest."""
        for server in self.servers:
            server.close()
        if self._service.num_sessions:
            logger.info("finishing %d sessions", self._service.num_sessions)
        try:
            await asyncio.wait_for(self._service.drain(), self._drain_timeout_s)
        except TimeoutError:
            logger.warning("%d sessions did not finish in time", self._service.num_sessions)
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Handle signals for as long as the server runs.

        Unlike uvicorn's own, these are not raised again afterwards: a stop that was asked for is
        no failure.
        """
        handlers = {
            signal.SIGINT: self._handle_stop,
            signal.SIGTERM: self._handle_stop,
            signal.SIGHUP: self._handle_reload,
        }
        previous = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _handle_reload(self, _number: int, _frame: object) -> None:
        asyncio.get_running_loop().call_soon_threadsafe(self._service.keys.reload)

    def _handle_stop(self, number: int, _frame: object) -> None:
        if self.should_exit:
            # threads may hold the interpreter's exit up, and it was asked for twice
            os._exit(128 + number)
        self.should_exit = True
