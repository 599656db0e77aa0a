"""How the service is run: one frozen dataclass, checked when built.

Every option of the command line, the environment and the configuration file comes from these
fields (streamer.options); nothing else reads them.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from streamer.options import option


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """The options of the service, in the groups that `wordwire serve --help` shows."""

    host: str = option("127.0.0.1", "address to listen on; 0.0.0.0 for every interface", "address")
    port: int = option(8000, "port to listen on; 0 takes a free one", "address")
    root_path: str = option("", "path under which a proxy serves this service", "address")
    trusted_proxies: tuple[str, ...] = option(
        ("127.0.0.1", "::1"), "addresses whose X-Forwarded-* headers count", "address"
    )
    tls_certificate: str = option("", "file with the certificate chain; empty for none", "address")
    tls_key: str = option("", "file with the certificate's private key", "address")

    max_sessions: int = option(64, "sessions served at once; more are refused with 503", "limits")
    max_connections: int = option(1024, "open sockets, those without a session included", "limits")
    start_timeout_s: float = option(
        15.0, "seconds a socket may take to send its first message", "limits"
    )
    idle_timeout_s: float = option(
        600.0, "seconds a session may go without any message from its client", "limits"
    )
    max_session_s: float = option(86_400.0, "seconds a session may live", "limits")
    max_message_bytes: int = option(
        8 * 2**20, "bytes of one audio message; a larger one closes the socket", "limits"
    )
    send_timeout_s: float = option(
        10.0, "seconds a client may leave what it was sent unread", "limits"
    )

    drain_timeout_s: float = option(
        8.0, "seconds that running sessions get to finish at shutdown", "shutdown"
    )

    log_level: str = option("info", "debug, info, warning or error", "logging")

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65_535:
            raise ValueError(f"expected port from 0 to 65535, got {self.port}")
        if bool(self.tls_certificate) != bool(self.tls_key):
            raise ValueError("expected tls_certificate and tls_key together, got one of them")
        if self.root_path and not self.root_path.startswith("/"):
            raise ValueError(f"expected root_path to begin with /, got {self.root_path!r}")
        for name in ("max_sessions", "max_connections", "max_message_bytes"):
            if getattr(self, name) < 1:
                raise ValueError(f"expected {name} of at least 1, got {getattr(self, name)}")
        for name in ("start_timeout_s", "idle_timeout_s", "max_session_s", "send_timeout_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"expected {name} above 0, got {getattr(self, name)}")
        if self.drain_timeout_s < 0:
            raise ValueError(f"expected drain_timeout_s of at least 0, got {self.drain_timeout_s}")
        if self.log_level not in ("debug", "info", "warning", "error"):
            raise ValueError(
                f"expected log_level debug, info, warning or error, got {self.log_level!r}"
            )
        for address in self.trusted_proxies:
            if address != "*":
                ipaddress.ip_network(address)  # ValueError says what is wrong with it
