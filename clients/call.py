"""`wordwire call`: send an audio file as Twilio would send a call, and print its text."""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import soxr
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from clients import telephone
from clients.audio_source import AudioSource, UnreadableAudio, open_audio
from clients.captions import add_session_arguments, complain, explain_no_server, read_key
from clients.handshake import ClientError, NoServer, open_socket


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument(
        "file",
        metavar="FILE",
        help="an audio file; if it has two channels, the left one is the caller (inbound)",
    )
    parser.add_argument("--fast", action="store_true", help="send faster than real time")
    parser.add_argument("--json", action="store_true", help="print the messages as they arrive")
    parser.add_argument("--call-sid", metavar="SID", help="of the call; a new one by default")
    parser.add_argument(
        "--shuffle", type=int, default=0, metavar="N", help="delay chunks by up to N places (0)"
    )
    parser.add_argument(
        "--loss", type=float, default=0.0, metavar="P", help="share of chunks to drop, 0 to 1 (0)"
    )
    add_session_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Make the call and print its text.

    Returns:
        0, or 1 if the file or the server cannot be used.
    """
    try:
        return asyncio.run(_run(arguments))
    except NoServer as error:
        explain_no_server(str(error))
    except (ClientError, UnreadableAudio) as error:
        complain(str(error))
    return 1


async def _run(arguments: argparse.Namespace) -> int:
    call = arguments.call_sid or "CA" + secrets.token_hex(16)
    connect = partial(open_socket, arguments.url, read_key(arguments))
    try:
        with open_audio(arguments.file, split_channels=True) as audio:
            async with (
                await connect(f"/v1/calls/{call}") as log,
                await connect("/v1/twilio") as line,
            ):
                tasks = (
                    asyncio.create_task(_speak(line, audio, call, arguments)),
                    asyncio.create_task(_listen(log, as_json=arguments.json)),
                )
                try:
                    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
                finally:
                    for task in tasks:
                        task.cancel()
                    await asyncio.gather(*tasks, return_exceptions=True)
                for task in done:
                    task.result()
    except ConnectionClosed as error:
        raise ClientError(f"the call broke off: {error}") from None
    return 0


async def _speak(
    line: ClientConnection, audio: AudioSource, call: str, arguments: argparse.Namespace
) -> None:
    """Send the file; each chunk has a due time of its own, so that delays do not add up."""
    stream = "MZ" + secrets.token_hex(16)
    tracks = telephone.TRACKS[: audio.channels]
    for message in telephone.opening(call, stream, tracks, _parameters(arguments)):
        await line.send(message)
    started = time.monotonic()
    messages = telephone.media(stream, tracks, chunks(audio))
    if arguments.shuffle or arguments.loss:
        messages = telephone.disturb(messages, arguments.shuffle, arguments.loss, seed=0)
    for number, message in enumerate(messages):
        due = started + number // len(tracks) * telephone.CHUNK_MS / 1000
        if not arguments.fast and (wait_s := due - time.monotonic()) > 0:
            await asyncio.sleep(wait_s)
        await line.send(message)
    await line.send(telephone.closing(call, stream))


async def _listen(log: ClientConnection, *, as_json: bool) -> None:
    """Print the call's messages until its end."""
    async for text in log:
        message = json.loads(text)
        if as_json:
            print(text, flush=True)
        elif message["type"] == "final":
            print(_line(message), flush=True)
        if message["type"] == "error":
            raise ClientError(f"the server refused the call: {message['message']}")
        if message["type"] == "done":
            return
    raise ClientError("the server closed before all of the call was transcribed")


def _line(message: Mapping[str, Any]) -> str:
    return f"{message['start']:8.2f} {message['track']:>8}: {message['text'].strip()}"


def chunks(audio: AudioSource) -> Iterator[Sequence[bytes]]:
    """Encode audio as the chunks of its tracks; the last one is padded with silence."""
    resamplers = [
        soxr.ResampleStream(audio.sample_rate, telephone.RATE, 1, dtype="float32")
        for _ in range(audio.channels)
    ]
    waiting = [b""] * audio.channels
    for block in audio.blocks:
        samples = np.frombuffer(block, "<i2").reshape(-1, audio.channels)
        waiting = [
            left + _encode(resampler, samples[:, channel], is_last=False)
            for channel, (left, resampler) in enumerate(zip(waiting, resamplers, strict=True))
        ]
        while min(map(len, waiting)) >= telephone.CHUNK_BYTES:
            yield [part[: telephone.CHUNK_BYTES] for part in waiting]
            waiting = [part[telephone.CHUNK_BYTES :] for part in waiting]
    nothing = np.zeros(0, np.int16)
    waiting = [
        left + _encode(resampler, nothing, is_last=True)
        for left, resampler in zip(waiting, resamplers, strict=True)
    ]
    while any(waiting):
        yield [
            part[: telephone.CHUNK_BYTES].ljust(telephone.CHUNK_BYTES, b"\xff") for part in waiting
        ]
        waiting = [part[telephone.CHUNK_BYTES :] for part in waiting]


def _encode(resampler: Any, pcm: Any, *, is_last: bool) -> bytes:
    samples = np.ascontiguousarray(pcm).astype(np.float32) / np.float32(32_768)
    return telephone.encode_mulaw(resampler.resample_chunk(samples, last=is_last))


def _parameters(arguments: argparse.Namespace) -> dict[str, str]:
    names = ("language", "task", "prompt", "hotwords", "delay")
    return {name: value for name in names if (value := getattr(arguments, name))}
