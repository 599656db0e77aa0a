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

    api_keys: tuple[str, ...] = option(
        (),
        "keys that clients must show one of; other users of the machine see a command line, so "
        "give them in the environment",
        "access",
        is_secret=True,
    )
    api_key_file: str = option(
        "", "TOML file with a table for each key; read again when it changes", "access"
    )
    allowed_origins: tuple[str, ...] = option(
        (), "origins of web pages, beside our own, that may use the service; * for all", "access"
    )
    allowed_hosts: tuple[str, ...] = option(
        (),
        "names, beside addresses and local ones, under which a service without keys may be "
        "reached; * for all",
        "access",
    )
    token_secret: str = option(
        "",
        "signs browsers' tokens, the same on all replicas; empty for a new one at each start",
        "access",
        is_secret=True,
    )
    key_max_sessions: int = option(
        0, "sessions at once of a key without a limit of its own; 0 for no limit", "access"
    )
    key_audio_s_per_minute: float = option(
        0.0, "seconds of audio a minute of such a key; 0 for no limit", "access"
    )
    max_failed_attempts: int = option(
        30, "wrong keys a minute before further ones of an address have to wait", "access"
    )

    max_sessions: int = option(
        64, "sessions served at once, where the machine carries so many", "limits"
    )
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
    max_upload_bytes: int = option(
        2 * 2**30, "bytes of a file posted to be transcribed; a larger one is refused", "limits"
    )
    max_recordings: int = option(16, "posted files transcribed at once", "limits")
    send_timeout_s: float = option(
        10.0, "seconds a client may leave what it was sent unread", "limits"
    )

    max_connections_per_address: int = option(
        0, "open sockets of one address; 0 for no limit", "limits"
    )
    request_timeout_s: float = option(
        10.0, "seconds a connection may take to send a request's head", "limits"
    )
    calibrate: bool = option(
        True, "measure at the start how many sessions the machine carries", "limits"
    )
    final_target_s: float = option(
        1.0, "seconds the engine may take for a final before fewer sessions are let in", "limits"
    )

    engine_process: bool = option(
        True,
        "run the engine in a process of its own, which is restarted when it dies",
        "engine process",
    )
    engine_hang_s: float = option(
        30.0,
        "seconds without any answer after which such a process is restarted",
        "engine process",
    )
    engine_load_timeout_s: float = option(
        1800.0,
        "seconds until the model is downloaded, loaded and warm; then the service ends with code 2",
        "engine process",
    )

    resume_grace_s: float = option(
        30.0, "seconds a session waits for its client to come back; 0 for not at all", "resume"
    )
    results_keep_s: float = option(
        600.0, "seconds that finals of a client which did not come back can be fetched", "resume"
    )

    call_grace_s: float = option(
        300.0, "seconds the text of a telephone call is kept after it ended", "calls"
    )
    max_calls: int = option(1000, "calls whose text is kept at once", "calls")
    call_webhook: str = option(
        "", "http address that every final of a call is posted to; empty for none", "calls"
    )

    drain_timeout_s: float = option(
        8.0, "seconds that running sessions get to finish at shutdown", "shutdown"
    )

    log_level: str = option("info", "debug, info, warning or error", "logging")
    log_format: str = option("text", "text, or json for one JSON object a line", "logging")

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65_535:
            raise ValueError(f"expected port from 0 to 65535, got {self.port}")
        if bool(self.tls_certificate) != bool(self.tls_key):
            raise ValueError("expected tls_certificate and tls_key together, got one of them")
        if self.root_path and not self.root_path.startswith("/"):
            raise ValueError(f"expected root_path to begin with /, got {self.root_path!r}")
        for name in (
            "max_sessions",
            "max_connections",
            "max_message_bytes",
            "max_failed_attempts",
            "max_upload_bytes",
            "max_recordings",
            "max_calls",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"expected {name} of at least 1, got {getattr(self, name)}")
        for name in (
            "start_timeout_s",
            "idle_timeout_s",
            "max_session_s",
            "send_timeout_s",
            "request_timeout_s",
            "final_target_s",
            "engine_hang_s",
            "engine_load_timeout_s",
        ):
            if not getattr(self, name) > 0:
                raise ValueError(f"expected {name} above 0, got {getattr(self, name)}")
        for name in (
            "drain_timeout_s",
            "resume_grace_s",
            "results_keep_s",
            "key_max_sessions",
            "key_audio_s_per_minute",
            "max_connections_per_address",
            "call_grace_s",
        ):
            if not getattr(self, name) >= 0:
                raise ValueError(f"expected {name} of at least 0, got {getattr(self, name)}")
        if self.log_level not in ("debug", "info", "warning", "error"):
            raise ValueError(
                f"expected log_level debug, info, warning or error, got {self.log_level!r}"
            )
        if self.log_format not in ("text", "json"):
            raise ValueError(f"expected log_format text or json, got {self.log_format!r}")
        if self.call_webhook and not self.call_webhook.startswith(("http://", "https://")):
            raise ValueError(f"expected call_webhook to be a URL, got {self.call_webhook!r}")
        for address in self.trusted_proxies:
            if address != "*":
                ipaddress.ip_network(address)  # ValueError says what is wrong with it
