"""`wordwire listen`: caption this machine's microphone. Needs the extra `microphone`."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator
from types import ModuleType
from typing import Any

from clients.captions import (
    add_session_arguments,
    build_start,
    caption,
    complain,
    explain_no_server,
    read_key,
    show_on,
    stop_on_interrupt,
    wait_on,
)
from clients.client import connect
from clients.display import Display
from clients.handshake import ClientError, NoServer

BLOCK_MS = 40  # of audio in a message: less adds overhead, more adds delay
# 5 s; if the connection stalls for longer, the oldest audio is dropped, with a note
MAX_WAITING_BLOCKS = 5_000 // BLOCK_MS
MIN_RATE, MAX_RATE = 8_000, 48_000  # Hz, what the service accepts


class NoMicrophone(Exception):
    """There is no usable microphone; the message says what to do."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("--device", help="name or number of the microphone")
    parser.add_argument(
        "--list-devices", action="store_true", help="print the microphones and exit"
    )
    add_session_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Caption the microphone until Ctrl+C.

    Returns:
        0, or 1 if there is no microphone or no server.
    """
    try:
        sounddevice = _load()
        if arguments.list_devices:
            print(sounddevice.query_devices())
            return 0
        return asyncio.run(_listen(arguments, sounddevice))
    except NoServer as error:
        explain_no_server(str(error))
    except (ClientError, NoMicrophone) as error:
        complain(str(error))
    return 1


def _load() -> ModuleType:
    try:
        import sounddevice
    except ImportError:
        raise NoMicrophone(
            "the microphone needs one more package: pip install 'wordwire[microphone]'"
        ) from None
    except OSError:
        raise NoMicrophone(
            "the PortAudio library is missing; on Debian: apt install libportaudio2"
        ) from None
    module: ModuleType = sounddevice
    return module


async def _listen(arguments: argparse.Namespace, sounddevice: ModuleType) -> int:
    device = arguments.device
    if device is not None and device.isdigit():
        device = int(device)
    try:
        found = sounddevice.query_devices(device, "input")
    except (ValueError, sounddevice.PortAudioError):
        raise NoMicrophone(f"no microphone found{f' named {device}' if device else ''}") from None
    rate = min(max(int(found["default_samplerate"]), MIN_RATE), MAX_RATE)
    start = build_start(arguments, sample_rate=rate, channels=1, words=False)
    display = Display(sys.stdout, is_terminal=sys.stdout.isatty())
    async with connect(
        arguments.url, start, key=read_key(arguments), on_wait=wait_on(display)
    ) as stream:
        display.note(f"Listening to {found['name']}. Press Ctrl+C to stop.")
        try:
            with stop_on_interrupt() as stop:
                blocks = _record(sounddevice, device, rate, stop, display)
                await caption(stream, blocks, show_on(display))
        finally:
            display.close()
    return 0


async def _record(
    sounddevice: ModuleType,
    device: str | int | None,
    rate: int,
    stop: asyncio.Event,
    display: Display,
) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    waiting: asyncio.Queue[bytes] = asyncio.Queue(MAX_WAITING_BLOCKS)

    def put(block: bytes) -> None:
        if waiting.full():
            waiting.get_nowait()
            display.note("(the connection is too slow; some audio was dropped)")
        waiting.put_nowait(block)

    def heard(data: Any, _frames: int, _times: Any, _status: Any) -> None:
        # PortAudio's own thread
        loop.call_soon_threadsafe(put, bytes(data))

    try:
        microphone = sounddevice.RawInputStream(
            samplerate=rate,
            blocksize=rate * BLOCK_MS // 1000,
            device=device,
            channels=1,
            dtype="int16",
            callback=heard,
        )
    except sounddevice.PortAudioError as error:
        raise NoMicrophone(f"the microphone cannot be opened: {error}") from None
    stopping = asyncio.create_task(stop.wait())
    try:
        with microphone:
            while not stop.is_set():
                getting = asyncio.create_task(waiting.get())
                await asyncio.wait((getting, stopping), return_when=asyncio.FIRST_COMPLETED)
                if getting.done():
                    yield getting.result()
                else:
                    getting.cancel()
    finally:
        stopping.cancel()
