"""Opus packets without a container, one to a message, as telephony gateways send them."""

from __future__ import annotations

import av
import numpy as np
import soxr
from av.audio.codeccontext import AudioCodecContext

from engine.api import SAMPLE_RATE, Samples
from streamer.audio.error import AudioError
from streamer.audio.ffmpeg import to_float

OPUS_RATE = 48_000  # Hz; what every Opus decoder gives, whatever was encoded (RFC 6716)


class OpusDecoder:
    """Decodes one stream of packets. A damaged packet is skipped, like one that was lost."""

    def __init__(self, channels: int) -> None:
        self._context = AudioCodecContext.create("opus", "r")
        assert isinstance(self._context, AudioCodecContext)
        self._context.sample_rate = OPUS_RATE
        self._context.layout = "mono" if channels == 1 else "stereo"
        self._channels = channels
        self._is_empty = True
        self._resamplers = [
            soxr.ResampleStream(OPUS_RATE, SAMPLE_RATE, 1, dtype="float32") for _ in range(channels)
        ]

    def decode(self, packet: bytes) -> list[Samples]:
        """Decode one packet.

        Returns:
            One (T,) float32 array per channel at 16 kHz.

        Raises:
            AudioError: the first packet is not Opus.
        """
        try:
            frames = self._context.decode(av.Packet(packet))
        except av.FFmpegError as error:
            if self._is_empty:
                raise AudioError("expected opus packets, one to a message") from error
            return [np.zeros(0, np.float32)] * self._channels
        self._is_empty = False
        samples = [to_float(frame) for frame in frames]  # each (C, T)
        joined = np.concatenate(samples, axis=1) if samples else np.zeros((self._channels, 0))
        return self._resample(joined.astype(np.float32), is_last=False)

    def flush(self) -> list[Samples]:
        """Return what the resamplers still hold."""
        return self._resample(np.zeros((self._channels, 0), np.float32), is_last=True)

    def _resample(self, samples: Samples, *, is_last: bool) -> list[Samples]:
        return [
            np.clip(resampler.resample_chunk(np.ascontiguousarray(row), last=is_last), -1.0, 1.0)
            for resampler, row in zip(self._resamplers, samples, strict=True)
        ]
