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
MIX_MEMORY_S = 1.0  # of the powers that weigh the channels of a mix
OPPOSED = 0.8  # correlation from which two channels are taken for one in opposite phase


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
    with _open_av(_Pipe(pipe), "standard input", split_channels=split_channels) as sound:
        yield sound


class _Pipe:
    """A pipe that gives what is there, where FFmpeg would wait for as much as it asked for."""

    def __init__(self, pipe: BinaryIO) -> None:
        self._pipe = pipe

    def read(self, size: int) -> bytes:
        return (
            self._pipe.read1(size)
            if isinstance(self._pipe, io.BufferedReader)
            else self._pipe.read(size)
        )


def open_raw(pipe: BinaryIO, *, sample_rate: int, channels: int, sample_bytes: int) -> Sound:
    """Take a pipe of bare samples, already in an encoding that the service knows."""
    size = max(1, round(sample_rate * BLOCK_S)) * channels * sample_bytes

    def blocks() -> Iterator[bytes]:
        # a live source is not held back until a block is full
        while data := _Pipe(pipe).read(size):
            yield data

    return Sound(sample_rate, channels, None, blocks())


def _read_soundfile(file: soundfile.SoundFile, channels: int, path: str) -> Iterator[bytes]:
    frames = max(1, round(file.samplerate * BLOCK_S))
    converter = _Converter(channels)
    while True:
        try:
            block = file.read(frames, dtype="float32", always_2d=True)
        except soundfile.LibsndfileError as error:
            raise UnreadableSound(f"{path} is broken: {error}") from None
        if not len(block):
            return
        yield converter.convert(block)


@contextlib.contextmanager
def _open_av(source: str | _Pipe, name: str, *, split_channels: bool) -> Generator[Sound]:
    try:
        if isinstance(source, _Pipe):
            # no more is read ahead than it takes to know the format: the sound may be live
            container = av.open(
                source,
                mode="r",
                buffer_size=4096,
                options={"probesize": "8192", "analyzeduration": "1000"},
                timeout=None,
            )
        else:
            container = av.open(source, mode="r")
    except (av.FFmpegError, OSError, ValueError):
        raise UnreadableSound(f"{name} is not a sound file that can be read") from None
    with container:
        if not container.streams.audio:
            raise UnreadableSound(f"{name} has no sound in it")
        track = container.streams.audio[0]
        if track.codec_context is None:
            raise UnreadableSound(f"{name} is in an encoding that cannot be read")
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
    converter = _Converter(channels)
    try:
        for decoded in itertools.chain(container.decode(track), [None]):
            for frame in resampler.resample(decoded):
                count = frame.layout.nb_channels
                yield converter.convert(frame.to_ndarray().astype(np.float32).reshape(-1, count))
    except av.FFmpegError as error:
        raise UnreadableSound(
            f"{name} is broken, or cannot be read through a pipe: {error}"
        ) from None


class _Converter:
    """Turns blocks of float samples into s16le, mixed down where one channel is wanted.

    The mix is as loud as its loudest channel, and a channel of opposite phase is turned around: an
    average would lower a voice that is in one channel of eight, and cancel one that is in both.
    """

    def __init__(self, channels: int) -> None:
        self._channels = channels
        self._products: npt.NDArray[np.float64] | None = None  # (C, C) running means

    def convert(self, block: npt.NDArray[np.float32]) -> bytes:
        """(T, C) samples, any floats, to interleaved s16le."""
        block = np.nan_to_num(block, nan=0.0, posinf=0.0, neginf=0.0)
        if self._channels == 1 and block.shape[1] > 1:
            block = self._mix(block)
        return (np.clip(block, -1.0, 1.0) * 32767).round().astype("<i2").tobytes()

    def _mix(self, block: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        exact = block.astype(np.float64)
        products = exact.T @ exact / max(1, len(block))
        if self._products is None:
            self._products = products
        self._products += (products - self._products) * (BLOCK_S / MIX_MEMORY_S)
        powers = np.diag(self._products)
        loudest = int(np.argmax(powers))
        opposed = self._products[loudest] < -OPPOSED * np.sqrt(powers * powers[loudest])
        weights = np.where(opposed, -1.0, 1.0)
        mixed = weights @ self._products @ weights
        gain = np.sqrt(powers[loudest] / mixed) if mixed > 0 else 1.0
        return (exact @ weights * min(gain, 1.0)).astype(np.float32)[:, None]
