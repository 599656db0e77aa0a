"""The public face of Wordwire: the client for Python, and the command `wordwire`.

    from wordwire import connect, Final, Partial, Start

The names of the client are imported when they are first used, so importing `wordwire` costs
nothing. Being the command as well, this is the one module that knows the service, the engine and
the clients.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import logging
import os
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clients.client import Stream, connect
    from clients.handshake import ClientError, NoServer, Refused
    from engine.api import Engine
    from engine.config import EngineConfig
    from engine.local import LocalEngine
    from engine.process.remote import RemoteEngine
    from streamer.config import ServerConfig
    from streamer.protocol import (
        Done,
        Error,
        Final,
        Partial,
        Ready,
        Reconnect,
        ServerMessage,
        SpeechEnded,
        SpeechStarted,
        Start,
        Word,
    )

__all__ = [
    "ClientError",
    "Done",
    "Error",
    "Final",
    "NoServer",
    "Partial",
    "Ready",
    "Reconnect",
    "Refused",
    "ServerMessage",
    "SpeechEnded",
    "SpeechStarted",
    "Start",
    "Stream",
    "Word",
    "connect",
    "main",
]

logger = logging.getLogger(__name__)

# what a client needs that does not come from `streamer.protocol`, and the module it comes from
CLIENT_MODULES = {
    "ClientError": "clients.handshake",
    "NoServer": "clients.handshake",
    "Refused": "clients.handshake",
    "Stream": "clients.client",
    "connect": "clients.client",
}
FAILED_START_CODE = 2  # exit code of a service that cannot run as configured


def __getattr__(name: str) -> object:
    """Import a public name on its first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(CLIENT_MODULES.get(name, "streamer.protocol"))
    value = globals()[name] = getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(
        prog="wordwire", description="Real-time transcription.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"wordwire {_version()}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    words = sys.argv[1:] if arguments is None else list(arguments)
    # each command imports only what it needs: a client, a module of its name, runs without torch
    for name, meaning in (
        ("serve", "run the service"),
        ("transcribe", "transcribe audio files, live or as fast as possible"),
        ("listen", "caption this machine's microphone"),
        ("call", "send a recording as a telephone call and print its text"),
        ("wyoming", "serve Home Assistant's voice assistants"),
    ):
        command = commands.add_parser(name, help=meaning, description=f"Wordwire: {meaning}.")
        if name in words:
            _add_arguments(name, command)
    parsed = parser.parse_args(words)
    try:
        return _run(parsed)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # whatever read our output is gone, so nothing more can be written
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _add_arguments(name: str, parser: argparse.ArgumentParser) -> None:
    if name in ("serve", "wyoming"):
        from engine.config import EngineConfig
        from streamer.config import ServerConfig
        from streamer.options import add_options

        parser.add_argument(
            "--config",
            metavar="FILE",
            help="TOML file with any of these options; the command line and WORDWIRE_* variables "
            "take precedence over it (default: WORDWIRE_CONFIG)",
        )
        add_options(parser, EngineConfig, "engine")
        add_options(parser, ServerConfig, "service")
    else:
        importlib.import_module(f"clients.{name}").add_arguments(parser)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.command == "serve":
        return _serve(arguments)
    if arguments.command == "wyoming":
        return _wyoming(arguments)
    code: int = importlib.import_module(f"clients.{arguments.command}").run(arguments)
    return code


def _serve(arguments: argparse.Namespace) -> int:
    from engine.api import EngineError
    from engine.checkpoint.locate import ModelError
    from streamer import options
    from streamer.access.keys import KeyFileError
    from streamer.app import create_app
    from streamer.operations import logs
    from streamer.transport import server_process as server

    try:
        config, engine_config = _read_configs(arguments)
    except options.OptionError as error:
        return _refuse(str(error))
    logs.set_up(config.log_level, config.log_format)
    server.quiet_uvicorn()
    try:
        listener = server.listen(config)
    except OSError as error:
        return _refuse(f"cannot listen on {config.host} port {config.port}: {error.strerror}")
    with listener, _LazyEngine(engine_config, config) as engine:
        try:
            app = create_app(engine.load, config)
        except KeyFileError as error:
            return _refuse(str(error))
        service = app.state.service
        scheme = "https" if config.tls_certificate else "http"
        address = f"[{config.host}]" if ":" in config.host else config.host
        port = listener.getsockname()[1]

        def announce() -> None:
            print(f"Wordwire at {scheme}://{address}:{port}", file=sys.stderr, flush=True)

        running = server.Server(app, service, config, on_start=announce)
        try:
            running.config.load()  # reads the certificate
        except OSError as error:
            return _refuse(f"cannot use the certificate {config.tls_certificate}: {error}")
        running.run(sockets=[listener])
    if service.failure is not None:
        if not isinstance(service.failure, ModelError | EngineError | ValueError):
            logger.error("the engine failed", exc_info=service.failure)
        return _refuse(str(service.failure) or type(service.failure).__name__)
    if not service.is_loaded:
        # a thread is still loading the model, and nothing waits for it now
        logging.shutdown()
        os._exit(0)
    return 0


def _wyoming(arguments: argparse.Namespace) -> int:
    from engine.api import EngineError
    from engine.checkpoint.locate import ModelError
    from streamer import options
    from streamer.access.keys import KeyFileError
    from streamer.operations import logs
    from streamer.protocols.wyoming import server as wyoming

    if not hasattr(arguments, "port"):
        arguments.port = wyoming.DEFAULT_PORT
    try:
        config, engine_config = _read_configs(arguments)
    except options.OptionError as error:
        return _refuse(str(error))
    logs.set_up(config.log_level, config.log_format)

    def announce(address: str) -> None:
        print(f"Wordwire for Wyoming at tcp://{address}", file=sys.stderr, flush=True)

    with _LazyEngine(engine_config, config) as engine:
        try:
            asyncio.run(wyoming.run(engine.load, config, on_start=announce))
        except OSError as error:
            return _refuse(f"cannot listen on {config.host} port {config.port}: {error.strerror}")
        except (KeyFileError, ModelError, EngineError, ValueError) as error:
            return _refuse(str(error) or type(error).__name__)
    return 0


def _read_configs(arguments: argparse.Namespace) -> tuple[ServerConfig, EngineConfig]:
    """Read the configuration: command line first, then environment, then file.

    Raises:
        OptionError: an option cannot be used; the message names it.
    """
    from engine.config import EngineConfig
    from streamer import options
    from streamer.config import ServerConfig

    path = arguments.config or os.environ.get("WORDWIRE_CONFIG")
    table = options.read_file(path) if path else {}
    options.check_names(table, (ServerConfig, EngineConfig))
    return (
        options.build(ServerConfig, arguments, os.environ, table),
        options.build(EngineConfig, arguments, os.environ, table),
    )


class _LazyEngine:
    """The engine, in this process or its own; the service's thread loads it, leaving closes it."""

    def __init__(self, config: EngineConfig, service: ServerConfig) -> None:
        self._config = config
        self._service = service
        self._engine: LocalEngine | RemoteEngine | None = None

    def load(self) -> Engine:
        if self._service.engine_process:
            from engine.process.pending import Limits
            from engine.process.remote import RemoteEngine
            from engine.process.wire import Recipe

            recipe = Recipe("engine.local", "load_engine", self._config)
            limits = Limits(
                hang_s=self._service.engine_hang_s, load_s=self._service.engine_load_timeout_s
            )
            engine = RemoteEngine(recipe, limits)
            self._engine = engine  # closed even where its load never ends
            engine.start()
        else:
            from engine.local import load_engine

            self._engine = load_engine(self._config)
        return self._engine

    def __enter__(self) -> _LazyEngine:
        return self

    def __exit__(self, *_: object) -> None:
        if self._engine is not None:
            self._engine.close()


def _refuse(message: str) -> int:
    print(f"wordwire: {message}", file=sys.stderr)
    return FAILED_START_CODE


def _version() -> str:
    try:
        return version("wordwire")
    except PackageNotFoundError:
        return "(not installed)"


if __name__ == "__main__":
    sys.exit(main())
