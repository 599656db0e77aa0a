"""Audio files as blocks of s16le bytes, whatever format they are in.

libsndfile (soundfile) reads WAV, FLAC, Ogg and MP3; everything else goes through FFmpeg (PyAV).
Files are read while they are sent, so their length does not matter.
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

BLOCK_S = 0.1  # of audio in a message
MAX_RATE = 48_000  # Hz, the most that the service accepts; higher rates are resampled here
MIN_RATE = 8_000
MIX_MEMORY_S = 1.0  # time constant of the powers that weigh the channels of a mix
MIN_OPPOSED_CORRELATION = 0.8  # from which two channels are one voice in opposite phase


class UnreadableAudio(Exception):
    """The file does not exist, or no audio can be read from it; the message can be shown."""


@dataclass(frozen=True, slots=True)
class AudioSource:
    """An open file. `blocks` can be iterated once."""

    sample_rate: int  # Hz, of the blocks
    channels: int  # 1, or 2 if channels are kept apart
    duration_s: float | None  # None if the file does not say
    blocks: Iterator[bytes]  # s16le, interleaved


@contextlib.contextmanager
def open_audio(path: str, *, split_channels: bool) -> Generator[AudioSource]:
    """Open an audio file.

    Args:
        path: any file that libsndfile or FFmpeg can read.
        split_channels: keep the two channels of a stereo file apart; otherwise they are mixed.

    Raises:
        UnreadableAudio: with the reason.
    """
    if not Path(path).is_file():
        reason = "is a folder" if Path(path).is_dir() else "does not exist"
        raise UnreadableAudio(f"{path} {reason}")
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
        yield AudioSource(
            sample_rate=file.samplerate,
            channels=channels,
            duration_s=file.frames / file.samplerate,
            blocks=_read_soundfile(file, channels, path),
        )


@contextlib.contextmanager
def open_pipe(pipe: BinaryIO, *, split_channels: bool) -> Generator[AudioSource]:
    """Open audio in any container that arrives through a pipe.

    Raises:
        UnreadableAudio: with the reason.
    """
    with _open_av(_Pipe(pipe), "standard input", split_channels=split_channels) as audio:
        yield audio


class _Pipe:
    """A pipe that returns what is there; FFmpeg would wait for as much as it asked for."""

    def __init__(self, pipe: BinaryIO) -> None:
        self._pipe = pipe

    def read(self, size: int) -> bytes:
        return (
            self._pipe.read1(size)
            if isinstance(self._pipe, io.BufferedReader)
            else self._pipe.read(size)
        )


def open_raw(pipe: BinaryIO, *, sample_rate: int, channels: int, sample_bytes: int) -> AudioSource:
    """Open a pipe of raw samples, already in an encoding that the service knows."""
    size = max(1, round(sample_rate * BLOCK_S)) * channels * sample_bytes

    def blocks() -> Iterator[bytes]:
        # a live source is not held back until a block is full
        while data := _Pipe(pipe).read(size):
            yield data

    return AudioSource(sample_rate, channels, None, blocks())


def _read_soundfile(file: soundfile.SoundFile, channels: int, path: str) -> Iterator[bytes]:
    frames = max(1, round(file.samplerate * BLOCK_S))
    converter = _Converter(channels)
    while True:
        try:
            block = file.read(frames, dtype="float32", always_2d=True)
        except soundfile.LibsndfileError as error:
            raise UnreadableAudio(f"{path} is broken: {error}") from None
        if not len(block):
            return
        yield converter.convert(block)


@contextlib.contextmanager
def _open_av(source: str | _Pipe, name: str, *, split_channels: bool) -> Generator[AudioSource]:
    try:
        if isinstance(source, _Pipe):
            # no more is read ahead than it takes to know the format: the audio may be live
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
        raise UnreadableAudio(f"{name} is not an audio file that can be read") from None
    with container:
        if not container.streams.audio:
            raise UnreadableAudio(f"{name} contains no audio")
        track = container.streams.audio[0]
        if track.codec_context is None:
            raise UnreadableAudio(f"{name} has an encoding that cannot be read")
        rate = min(max(track.rate or MAX_RATE, MIN_RATE), MAX_RATE)
        channels = 2 if split_channels and track.channels == 2 else 1
        yield AudioSource(
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
        raise UnreadableAudio(
            f"{name} is broken, or cannot be read through a pipe: {error}"
        ) from None


class _Converter:
    """Converts blocks of float samples to s16le, mixed down if one channel is wanted.

    The mix is as loud as its loudest channel, and a channel in opposite phase is inverted: an
    average would lower a voice that is in one channel of eight, and cancel one that is in both.
    """

    def __init__(self, channels: int) -> None:
        self._channels = channels
        self._products: npt.NDArray[np.float64] | None = None  # (C, C) running means

    def convert(self, block: npt.NDArray[np.float32]) -> bytes:
        """Convert (T, C) samples, any floats, to interleaved s16le."""
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
        opposed = self._products[loudest] < -MIN_OPPOSED_CORRELATION * np.sqrt(
            powers * powers[loudest]
        )
        weights = np.where(opposed, -1.0, 1.0)
        mixed = weights @ self._products @ weights
        gain = np.sqrt(powers[loudest] / mixed) if mixed > 0 else 1.0
        return (exact @ weights * min(gain, 1.0)).astype(np.float32)[:, None]
