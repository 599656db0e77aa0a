"""Sound files as blocks of s16le bytes, whatever format they are in.

libsndfile (soundfile) reads WAV, FLAC, Ogg and MP3; everything else goes through FFmpeg (PyAV).
Files are read as they are sent, so length does not matter.
"""

from __future__ import annotations

import contextlib
import io
import itertools
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import av
import numpy as np
import numpy.typing as npt
import soundfile

BLOCK_S = 0.1  # s of sound in a message
MAX_RATE = 48_000  # Hz, the most that the service takes; more is resampled here
MIN_RATE = 8_000


class UnreadableSound(Exception):
    """The file is not there, or no sound can be read from it; the message is fit to show."""


@dataclass(frozen=True, slots=True)
class Sound:
    """An opened file. `blocks` can be walked once."""

    sample_rate: int  # Hz, of the blocks
    channels: int  # 1, or 2 where channels are kept apart
    duration_s: float | None  # None where the file does not say
    blocks: Iterator[bytes]  # s16le, interleaved


@contextlib.contextmanager
def open_sound(path: str, *, split_channels: bool) -> Generator[Sound]:
    """Open a sound file.

    Args:
        path: any file that libsndfile or FFmpeg reads.
        split_channels: keep the two channels of a stereo file apart; otherwise they are mixed.

    Raises:
        UnreadableSound: with the reason.
    """
    if not Path(path).is_file():
        reason = "is a folder" if Path(path).is_dir() else "does not exist"
        raise UnreadableSound(f"{path} {reason}")
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(soundfile.SoundFile(path))
        except (soundfile.LibsndfileError, OSError):
            yield stack.enter_context(_open_av(path, path, split_channels=split_channels))
            return
        if not MIN_RATE <= file.samplerate <= MAX_RATE:
            file.close()
            yield stack.enter_context(_open_av(path, path, split_channels=split_channels))
            return
        channels = 2 if split_channels and file.channels == 2 else 1
        yield Sound(
            sample_rate=file.samplerate,
            channels=channels,
            duration_s=file.frames / file.samplerate,
            blocks=_read_soundfile(file, channels, path),
        )


@contextlib.contextmanager
def open_pipe(pipe: BinaryIO, *, split_channels: bool) -> Generator[Sound]:
    """Open sound in any container that comes through a pipe.

    Raises:
        UnreadableSound: with the reason.
    """
    with _open_av(pipe, "standard input", split_channels=split_channels) as sound:
        yield sound


def open_raw(pipe: BinaryIO, *, sample_rate: int, channels: int, sample_bytes: int) -> Sound:
    """Take a pipe of bare samples, already in an encoding that the service knows."""
    size = max(1, round(sample_rate * BLOCK_S)) * channels * sample_bytes

    def blocks() -> Iterator[bytes]:
        # `read1` returns what is there: a live source is not held back until a block is full
        read = pipe.read1 if isinstance(pipe, io.BufferedReader) else pipe.read
        while data := read(size):
            yield data

    return Sound(sample_rate, channels, None, blocks())


def _read_soundfile(file: soundfile.SoundFile, channels: int, path: str) -> Iterator[bytes]:
    frames = max(1, round(file.samplerate * BLOCK_S))
    while True:
        try:
            block = file.read(frames, dtype="float32", always_2d=True)
        except soundfile.LibsndfileError as error:
            raise UnreadableSound(f"{path} is broken: {error}") from None
        if not len(block):
            return
        yield _to_s16(block, channels)


@contextlib.contextmanager
def _open_av(source: str | BinaryIO, name: str, *, split_channels: bool) -> Generator[Sound]:
    try:
        container = av.open(source, mode="r")
    except (av.FFmpegError, OSError, ValueError):
        raise UnreadableSound(f"{name} is not a sound file that can be read") from None
    with container:
        if not container.streams.audio:
            raise UnreadableSound(f"{name} has no sound in it")
        track = container.streams.audio[0]
        rate = min(max(track.rate or MAX_RATE, MIN_RATE), MAX_RATE)
        channels = 2 if split_channels and track.channels == 2 else 1
        yield Sound(
            sample_rate=rate,
            channels=channels,
            duration_s=container.duration / av.time_base if container.duration else None,
            blocks=_read_av(container, track, rate, channels, name),
        )


def _read_av(
    container: av.container.InputContainer,
    track: av.AudioStream,
    rate: int,
    channels: int,
    name: str,
) -> Iterator[bytes]:
    frames = max(1, round(rate * BLOCK_S))
    resampler = av.AudioResampler(format="flt", rate=rate, frame_size=frames)
    try:
        for decoded in itertools.chain(container.decode(track), [None]):
            for frame in resampler.resample(decoded):
                count = frame.layout.nb_channels
                yield _to_s16(frame.to_ndarray().astype(np.float32).reshape(-1, count), channels)
    except av.FFmpegError as error:
        raise UnreadableSound(f"{name} is broken: {error}") from None


def _to_s16(block: npt.NDArray[np.float32], channels: int) -> bytes:
    """(T, C) float32 to interleaved s16le, mixed down to `channels`."""
    if channels == 1 and block.shape[1] > 1:
        block = block.mean(axis=1, keepdims=True)
    return (np.clip(block, -1.0, 1.0) * 32767).round().astype("<i2").tobytes()
