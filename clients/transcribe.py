"""`wordwire transcribe`: audio files through the service, as captions or as a transcript."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import sys
import time
from collections.abc import AsyncIterator, Generator, Sequence
from pathlib import Path

from clients import subtitles
from clients.audio_source import (
    BLOCK_S,
    AudioSource,
    UnreadableAudio,
    open_audio,
    open_pipe,
    open_raw,
)
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
from clients.resume_buffer import SAMPLE_BYTES
from streamer.protocol import Final

FORMATS = {
    "text": subtitles.to_text,
    "json": subtitles.to_json,
    "srt": subtitles.to_srt,
    "vtt": subtitles.to_vtt,
}
STANDARD_INPUT = "-"
MIN_PROGRESS_S = 10.0  # shorter files end before a progress line helps


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="an audio file of any format; - for standard input"
    )
    pace = parser.add_mutually_exclusive_group()
    pace.add_argument(
        "--realtime",
        action="store_true",
        help="send at the pace of the audio, as a microphone would; the default for files",
    )
    pace.add_argument("--fast", action="store_true", help="send as fast as the server accepts it")
    parser.add_argument(
        "--format", choices=tuple(FORMATS), default="text", help="of the transcript (text)"
    )
    parser.add_argument("--output", "-o", metavar="FILE", help="write the transcript to this file")
    parser.add_argument(
        "--split-channels",
        action="store_true",
        help="transcribe the two channels of a stereo file separately, as for a call",
    )
    add_session_arguments(parser)
    raw = parser.add_argument_group("raw samples on standard input")
    raw.add_argument(
        "--encoding", choices=tuple(SAMPLE_BYTES), help="of raw samples, which have no header"
    )
    raw.add_argument("--sample-rate", type=int, default=16_000, metavar="HZ", help="(16000)")
    raw.add_argument("--channels", type=int, default=1, choices=(1, 2), help="(1)")


def run(arguments: argparse.Namespace) -> int:
    """Transcribe the files one after the other.

    Returns:
        0, or 1 if one could not be read or transcribed.
    """
    try:
        return asyncio.run(_run(arguments))
    except NoServer as error:
        explain_no_server(str(error))
    except (ClientError, UnreadableAudio) as error:
        complain(str(error))
    except OSError as error:
        complain(f"{error.filename or 'output'}: {error.strerror}")
    return 1


async def _run(arguments: argparse.Namespace) -> int:
    finals: list[list[Final]] = []
    with stop_on_interrupt() as stop:
        for name in arguments.files:
            if stop.is_set():
                break
            finals.append(await _transcribe(name, arguments, stop))
    is_live = arguments.format == "text" and not arguments.output
    if not is_live:
        _write(arguments, finals)
    return 0


async def _transcribe(name: str, arguments: argparse.Namespace, stop: asyncio.Event) -> list[Final]:
    with _open(name, arguments) as audio, _display(arguments, audio.channels) as display:
        start = build_start(
            arguments,
            sample_rate=audio.sample_rate,
            channels=audio.channels,
            words=arguments.format != "text",
        )
        if arguments.encoding and name == STANDARD_INPUT:
            start = dataclasses.replace(start, encoding=arguments.encoding)
        # a pipe sets its own pace
        paced = not arguments.fast and (name != STANDARD_INPUT or arguments.realtime)
        async with connect(
            arguments.url, start, key=read_key(arguments), on_wait=wait_on(display)
        ) as stream:
            blocks = _blocks(audio, stop, display, name=name, paced=paced)
            return await caption(stream, blocks, show_on(display))


@contextlib.contextmanager
def _open(name: str, arguments: argparse.Namespace) -> Generator[AudioSource]:
    if name != STANDARD_INPUT:
        with open_audio(name, split_channels=arguments.split_channels) as audio:
            yield audio
    elif arguments.encoding:
        yield open_raw(
            sys.stdin.buffer,
            sample_rate=arguments.sample_rate,
            channels=arguments.channels,
            sample_bytes=SAMPLE_BYTES[arguments.encoding],
        )
    else:
        with open_pipe(sys.stdin.buffer, split_channels=arguments.split_channels) as audio:
            yield audio


@contextlib.contextmanager
def _display(arguments: argparse.Namespace, channels: int) -> Generator[Display]:
    """Show captions on a terminal; write finals to standard output if they are the result."""
    is_live = arguments.format == "text" and not arguments.output
    out = sys.stdout if is_live else sys.stderr
    is_terminal = out.isatty()
    display = Display(
        out,
        is_terminal=is_terminal,
        show_channels=channels > 1,
        is_silent=not (is_live or is_terminal),
    )
    try:
        yield display
    finally:
        display.close()


async def _blocks(
    audio: AudioSource, stop: asyncio.Event, display: Display, *, name: str, paced: bool
) -> AsyncIterator[bytes]:
    """Yield the blocks of a file, at the pace of the audio if `paced`."""
    began = time.monotonic()
    num_blocks = 0
    # a pipe may block for any time; the captions must go on meanwhile
    while not stop.is_set() and (block := await asyncio.to_thread(next, audio.blocks, None)):
        if paced:
            # due when a microphone would have heard the whole block
            await asyncio.sleep(began + (num_blocks + 1) * BLOCK_S - time.monotonic())
        yield block
        num_blocks += 1
        display.status(_progress(name, num_blocks * BLOCK_S, audio.duration_s, began))


def _progress(name: str, position_s: float, duration_s: float | None, began: float) -> str:
    if duration_s is None or duration_s < MIN_PROGRESS_S:
        return ""
    share = min(1.0, position_s / duration_s)
    elapsed_s = max(1e-3, time.monotonic() - began)
    return (
        f"{Path(name).name}  {_clock(position_s)} / {_clock(duration_s)}  "
        f"{share:.0%}  {position_s / elapsed_s:.1f}x"
    )


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def _write(arguments: argparse.Namespace, finals: Sequence[list[Final]]) -> None:
    text = "".join(FORMATS[arguments.format](one) for one in finals)
    if arguments.output:
        Path(arguments.output).write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
