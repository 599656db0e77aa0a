"""One session at the terminal: audio goes in, captions come out, the finals are kept."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Generator

from clients.client import Stream
from clients.display import Display
from clients.handshake import DEFAULT_URL
from streamer.protocol import Error, Final, Partial, ServerMessage, Start

KEY_VARIABLE = "WORDWIRE_API_KEY"


def add_session_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of every command that opens a session."""
    group = parser.add_argument_group("session")
    group.add_argument("--url", default=DEFAULT_URL, help=f"address of the server ({DEFAULT_URL})")
    group.add_argument(
        "--key",
        help=f"API key; the environment variable {KEY_VARIABLE} keeps it out of process lists",
    )
    group.add_argument("--language", help="ISO 639-1 code (detected)")
    group.add_argument("--task", choices=("transcribe", "translate"), default="transcribe")
    group.add_argument(
        "--prompt", default="", help="text that might have come before: names, spelling, style"
    )
    group.add_argument("--hotwords", default="", metavar="A,B", help="words and names to expect")
    group.add_argument(
        "--delay",
        choices=("minimal", "low", "medium", "high", "xhigh"),
        default="low",
        help="how long text may change before it is committed (low)",
    )


def read_key(arguments: argparse.Namespace) -> str | None:
    """Return the key that the server may ask for, or None."""
    return arguments.key or os.environ.get(KEY_VARIABLE) or None


def build_start(
    arguments: argparse.Namespace, *, sample_rate: int, channels: int, words: bool
) -> Start:
    """Build the opening message from the options of `add_session_arguments`."""
    return Start(
        sample_rate=sample_rate,
        channels=channels,
        language=arguments.language,
        task=arguments.task,
        prompt=arguments.prompt,
        hotwords=[word.strip() for word in arguments.hotwords.split(",") if word.strip()],
        words=words,
        delay=arguments.delay,
    )


async def caption(
    stream: Stream, blocks: AsyncIterator[bytes], show: Callable[[ServerMessage], None]
) -> list[Final]:
    """Send all blocks, show every message as it arrives, and return the finals.

    Raises:
        ClientError: the session broke off.
    """
    finals: list[Final] = []

    async def collect() -> None:
        async for message in stream:
            show(message)
            if isinstance(message, Final):
                finals.append(message)

    collecting = asyncio.create_task(collect())
    try:
        async for block in blocks:
            if collecting.done():  # the server ended the session
                break
            await stream.send(block)
        if not collecting.done():
            await stream.end()
        await collecting
    finally:
        collecting.cancel()
        await asyncio.gather(collecting, return_exceptions=True)
    return finals


def show_on(display: Display) -> Callable[[ServerMessage], None]:
    """Return what `caption` calls with each message."""

    def show(message: ServerMessage) -> None:
        match message:
            case Partial():
                display.partial(message)
            case Final():
                display.final(message)
            case Error():
                display.note(f"the server says: {message.message}")

    return show


def wait_on(display: Display) -> Callable[[str, float], None]:
    """Return what `connect` calls while it reconnects."""

    def wait(reason: str, delay_s: float) -> None:
        display.note(f"({reason}; trying again in {delay_s:.0f} s, nothing is lost)")

    return wait


@contextlib.contextmanager
def stop_on_interrupt() -> Generator[asyncio.Event]:
    """Turn the first Ctrl+C into an event; a second one interrupts as usual."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def interrupt() -> None:
        stop.set()
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    try:
        loop.add_signal_handler(signal.SIGINT, interrupt)
    except (NotImplementedError, ValueError, RuntimeError):
        # not the main thread, or Windows: Ctrl+C interrupts at once
        yield stop
        return
    try:
        yield stop
    finally:
        loop.remove_signal_handler(signal.SIGINT)


def complain(message: str) -> None:
    """Print on standard error, in one line, what went wrong."""
    print(f"wordwire: {message}", file=sys.stderr)


def explain_no_server(message: str) -> None:
    """Print that no server answers, and how to start one."""
    complain(f"{message}\nStart one with: wordwire serve    (or name another with --url)")
