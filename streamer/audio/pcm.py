"""Turn the bytes of a client's packets into samples: 16 kHz float32, one array per channel.

Any packet size will do: an incomplete sample waits for its other half, and each channel has one
resampler for its whole life, since resampling packets one by one leaves clicks at the seams.
Containers (Ogg, WebM, MP3 ...) are for others, and refused by name, as samples are that cannot be
of the declared encoding. The header and the other chunks of a WAV file around raw samples are
skipped.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import soxr

from engine.api import SAMPLE_RATE, Samples
from streamer.audio import raw_check, wav
from streamer.audio.error import AudioError, UndeclaredAudio
from streamer.audio.g711 import ALAW, MULAW
from streamer.schema import RangeError

ENCODINGS = {"pcm_s16le": 2, "pcm_f32le": 4, "mulaw": 1, "alaw": 1}  # bytes a sample
RAW_REMEDY = "send raw samples, decoded, in the declared encoding"
MIN_RATE, MAX_RATE = 8_000, 48_000  # Hz: telephone to studio


@dataclass(frozen=True, slots=True)
class AudioFormat:
    """How a client sends audio. Checks itself when built: RangeError."""

    encoding: str = "pcm_s16le"  # one of ENCODINGS
    sample_rate: int = SAMPLE_RATE  # Hz
    channels: int = 1  # interleaved
    # what clients of the protocol can do whose audio is something else
    remedy: str = field(default=RAW_REMEDY, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.encoding not in ENCODINGS:
            names = ", ".join(ENCODINGS)
            raise RangeError("encoding", f"to be one of {names}", repr(self.encoding))
        if not MIN_RATE <= self.sample_rate <= MAX_RATE:
            raise RangeError("sample_rate", f"from {MIN_RATE} to {MAX_RATE} Hz", self.sample_rate)
        if self.channels not in (1, 2):
            raise RangeError("channels", "to be 1 or 2", self.channels)

    @property
    def frame_bytes(self) -> int:
        """Bytes of one sample of all channels."""
        return ENCODINGS[self.encoding] * self.channels

    @property
    def bytes_per_second(self) -> int:
        return self.frame_bytes * self.sample_rate


class AudioDecoder:
    """Decodes one stream of packets, whatever their sizes."""

    def __init__(self, audio_format: AudioFormat) -> None:
        self.format = audio_format
        self._carry = b""  # less than a frame; or the head of the stream, until it is known
        self._at_head = True
        self._chunks: wav.DataChunks | None = None  # where the stream is a WAV file
        self._check = raw_check.RawCheck(audio_format.encoding)
        self._resamplers = (
            []
            if audio_format.sample_rate == SAMPLE_RATE
            else [
                soxr.ResampleStream(audio_format.sample_rate, SAMPLE_RATE, 1, dtype="float32")
                for _ in range(audio_format.channels)
            ]
        )

    def decode(self, data: bytes) -> list[Samples]:
        """Decode a packet, of any size.

        Returns:
            One (T,) float32 array in [-1, 1] per channel, all of the same length, maybe empty.

        Raises:
            AudioError: the stream starts with a WAV header that contradicts the format.
            UndeclaredAudio: it is a container, or of another encoding.
        """
        if self._at_head:
            data = self._take_head(self._carry + data)
        if self._chunks is not None:
            data = self._chunks.take(data)
        return self._convert(data, is_last=False)

    def flush(self) -> list[Samples]:
        """Return what the resamplers still hold; the decoder is then spent.

        An incomplete last sample is dropped: it is not known.
        """
        data = b""
        if self._at_head:
            data, self._carry, self._at_head = self._carry, b"", False
        return self._convert(data, is_last=True)

    def _take_head(self, data: bytes) -> bytes:
        """Drop a WAV header; returns nothing and keeps the bytes while that is undecided."""
        self._carry = b""
        if (name := raw_check.container_name(data[: raw_check.HEAD_BYTES])) is not None:
            raise self._undeclared(name)
        if not wav.may_be_wav(data):
            if raw_check.may_be_container(data):
                self._carry = data
                return b""
            self._at_head = False
            return data
        header = wav.parse_header(data) if len(data) >= 12 else 12
        if isinstance(header, int):
            self._carry = data
            return b""
        self._at_head = False
        try:
            declared = AudioFormat(header.encoding, header.sample_rate, header.channels)
        except ValueError as error:
            raise AudioError(str(error)) from None
        if declared != self.format:
            raise AudioError(
                f"expected {_describe(self.format)}, got a wav header of {_describe(declared)}"
            )
        self._chunks = wav.DataChunks(header.data_size)
        return data[header.data_start :]

    def _undeclared(self, found: str) -> UndeclaredAudio:
        return UndeclaredAudio(
            f"expected {_describe(self.format)} without a container, got {found}; "
            f"{self.format.remedy}"
        )

    def _convert(self, data: bytes, *, is_last: bool) -> list[Samples]:
        if not self._at_head:
            data = self._carry + data
            num_whole = len(data) - len(data) % self.format.frame_bytes
            self._carry, data = data[num_whole:], data[:num_whole]
        if not self._check.is_done:
            # one channel: two that take turns are as rough as noise
            width = ENCODINGS[self.format.encoding]
            first = np.frombuffer(data, f"V{width}")[:: self.format.channels]
            if (found := self._check.take(first.tobytes())) is not None:
                raise self._undeclared(found)
        samples = _to_float(data, self.format.encoding)
        channels = [
            np.ascontiguousarray(samples[channel :: self.format.channels])
            for channel in range(self.format.channels)
        ]
        if not self._resamplers:
            return channels
        return [
            # a band-limited full-scale signal may overshoot by a few percent
            np.clip(resampler.resample_chunk(channel, last=is_last), -1.0, 1.0)
            for resampler, channel in zip(self._resamplers, channels, strict=True)
        ]


def _describe(audio_format: AudioFormat) -> str:
    return f"{audio_format.encoding} {audio_format.sample_rate} Hz x {audio_format.channels}"


def _to_float(data: bytes, encoding: str) -> Samples:
    """Convert whole samples to float32 in [-1, 1]; what is not a number becomes silence."""
    match encoding:
        case "pcm_s16le":
            return np.frombuffer(data, "<i2").astype(np.float32) / np.float32(32768)
        case "pcm_f32le":
            samples = np.frombuffer(data, "<f4").astype(np.float32)
            samples[~np.isfinite(samples)] = 0.0
            return np.clip(samples, -1.0, 1.0)
        case "mulaw":
            return MULAW[np.frombuffer(data, np.uint8)]
        case "alaw":
            return ALAW[np.frombuffer(data, np.uint8)]
        case _:
            raise AssertionError(f"unchecked encoding {encoding}")
