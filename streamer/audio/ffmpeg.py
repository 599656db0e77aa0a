"""FFmpeg, through PyAV: bytes to frames of decoded audio, errors to sentences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import av
import numpy as np

from engine.api import Samples
from streamer.audio.error import AudioError
from streamer.audio.probe import RawFormat, Source, explain_failure

# What may be opened. Playlists and the like stay out: they make FFmpeg open other files and hosts.
FORMATS = "wav,w64,flac,ogg,matroska,webm,mov,mp4,m4a,mp3,aac,aiff,au,caf,asf,wv,amr"
MIN_RATE, MAX_RATE = 4_000, 384_000  # Hz; a rate outside is a lie in a header
MAX_CHANNELS = 64  # FFmpeg's own limit for most codecs
MAX_FAILURES = 16  # of a container to find its next packet, until the rest is given up
PROBE = 5_000_000  # bytes in which a format must show itself (FFmpeg's own default)


def read_frames(source: Source, raw: RawFormat | None, head: bytes) -> Iterator[av.AudioFrame]:
    """Decode with FFmpeg; damaged packets are skipped, a damaged container ends the audio.

    Args:
        head: the first bytes of the source, to say what is wrong with it.

    Raises:
        AudioError: there was nothing to decode.
    """
    num_frames, is_damaged = 0, False
    with _open(source, raw, head) as container:
        if not container.streams.audio:
            raise AudioError("expected an audio track, found none in the file")
        stream = container.streams.audio[0]
        if stream.codec_context is None:
            raise AudioError("expected a codec that can be decoded, found an unknown one")
        for frame in _decode(container, stream):
            if frame is None:
                is_damaged = True
                continue
            try:
                _check(frame)
            except AudioError:
                if num_frames == 0:
                    raise
                continue  # a damaged frame among sound ones
            num_frames += 1
            yield frame
    if num_frames == 0:
        raise AudioError(explain_failure(head) if is_damaged else "expected audio, found none")


def _open(source: Source, raw: RawFormat | None, head: bytes) -> av.container.InputContainer:
    if raw is None:
        options = {"format_whitelist": FORMATS, "analyzeduration": "0", "probesize": str(PROBE)}
    else:
        options = {"sample_rate": str(raw.sample_rate), "ch_layout": f"{raw.channels}C"}
    try:
        container: av.container.InputContainer = av.open(
            source,
            "r",
            format=None if raw is None else raw.encoding,
            options=options,
            # what can be read in any order may be read ahead; the rest may be live
            buffer_size=1 << 16 if hasattr(source, "seek") else 1 << 12,
            **_tolerate_tags(av.__version__),
        )
    except (av.FFmpegError, ValueError) as error:
        raise AudioError(explain_failure(head)) from error
    return container


def _tolerate_tags(version: str) -> dict[str, Any]:
    """Ask PyAV not to refuse audio for a tag in another encoding than UTF-8.

    From version 19 on it never does, and has no argument for it (its changelog).
    """
    return {"metadata_errors": "replace"} if int(version.partition(".")[0]) < 19 else {}


def _decode(
    container: av.container.InputContainer, stream: av.AudioStream
) -> Iterator[av.AudioFrame | None]:
    """Yield the frames, and None in place of what is damaged."""
    packets, num_failures = container.demux(stream), 0
    while True:
        try:
            packet = next(packets)
        except StopIteration:
            return
        except av.FFmpegError:
            yield None
            num_failures += 1
            if num_failures > MAX_FAILURES:
                return
            packets = container.demux(stream)  # goes on where it stopped
            continue
        try:
            yield from packet.decode()
        except (av.FFmpegError, ValueError):
            yield None  # the next packet may be whole


def _check(frame: av.AudioFrame) -> None:
    if not MIN_RATE <= frame.sample_rate <= MAX_RATE:
        raise AudioError(
            f"expected a sample rate from {MIN_RATE} to {MAX_RATE} Hz, got {frame.sample_rate}"
        )
    if not 1 <= frame.layout.nb_channels <= MAX_CHANNELS:
        raise AudioError(f"expected 1 to {MAX_CHANNELS} channels, got {frame.layout.nb_channels}")


def to_float(frame: av.AudioFrame) -> Samples:
    """Return a frame as (C, T) float32 in [-1, 1]; what is not a number becomes 0."""
    if frame.format.is_planar and frame.layout.nb_channels >= 8:
        # PyAV 18 runs past the end of a list of eight planes and crashes
        packer = av.AudioResampler(format="flt", layout=frame.layout, rate=frame.sample_rate)
        (frame,) = packer.resample(frame)
    array = frame.to_ndarray()
    if not frame.format.is_planar:  # (1, T * C) -> (C, T)
        array = array.reshape(-1, frame.layout.nb_channels).T
    if array.dtype == np.uint8:
        return ((array.astype(np.float32) - 128.0) / 128.0).astype(np.float32)
    if array.dtype.kind == "i":
        scale = np.float32(1 << (8 * array.dtype.itemsize - 1))
        return (array / scale).astype(np.float32)
    clean = np.where(np.isfinite(array), array, 0.0)
    return np.clip(clean, -1.0, 1.0).astype(np.float32)
