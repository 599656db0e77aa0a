"""One session at the terminal: sound goes in, captions come out, the transcript is kept."""

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
    """Declare what every command that opens a session takes."""
    group = parser.add_argument_group("session")
    group.add_argument("--url", default=DEFAULT_URL, help=f"of the server ({DEFAULT_URL})")
    group.add_argument("--key", help=f"API key; {KEY_VARIABLE} in the environment does not show")
    group.add_argument("--language", help="ISO 639-1 code; detected where not given")
    group.add_argument("--task", choices=("transcribe", "translate"), default="transcribe")
    group.add_argument("--prompt", default="", help="text that might have come before")
    group.add_argument("--hotwords", default="", metavar="A,B", help="words and names to expect")
    group.add_argument(
        "--delay",
        choices=("minimal", "low", "medium", "high", "xhigh"),
        default="low",
        help="how long text may stay open before it settles (low)",
    )


def read_key(arguments: argparse.Namespace) -> str | None:
    """Find the key that the server may ask for."""
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
    """Send all blocks and return the finals; every message is shown as it comes.

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
            if collecting.done():  # the server gave up on the session
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
    """Make what `caption` calls with each message."""

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
    """Make what `connect` calls while it comes back."""

    def wait(reason: str, delay_s: float) -> None:
        display.note(f"({reason}; trying again in {delay_s:.0f} s, nothing is lost)")

    return wait


@contextlib.contextmanager
def stop_on_interrupt() -> Generator[asyncio.Event]:
    """Turn the first Ctrl+C into an event; the second one interrupts as usual."""
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
    """Tell the person at the terminal what went wrong, in one line."""
    print(f"wordwire: {message}", file=sys.stderr)


def explain_no_server(message: str) -> None:
    """Say that nobody answers, and how to start a server."""
    complain(f"{message}\nStart one with: wordwire serve    (or name another with --url)")
