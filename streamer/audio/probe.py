"""The front of a stream: what must be known of its first bytes before FFmpeg reads on.

FFmpeg reads WAV files of every kind, but looks at 64 KiB before it gives the first sample, which is
two seconds of a live stream. Plain sample formats need no more than their header; everything else
(ADPCM, GSM, MP3 inside WAV) is left to FFmpeg. And an MP4 whose index comes last cannot be decoded
as it arrives: such a file has to be put aside whole.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from streamer.audio import wav
from streamer.audio.error import AudioError

MAX_INDEX_START = 1 << 20  # bytes of an MP4 in front of its index or its samples


class Source(Protocol):
    """Where bytes come from. `read` waits, gives at most `size`, and b"" only at the end."""

    def read(self, size: int, /) -> bytes: ...


@runtime_checkable
class SeekableSource(Source, Protocol):
    """Bytes that can be read in any order."""

    def seek(self, position: int, whence: int = 0, /) -> int: ...


@dataclass(frozen=True, slots=True)
class RawFormat:
    """Samples without a container."""

    encoding: str  # as FFmpeg names its raw formats: "s16le", "mulaw" ...
    sample_rate: int  # Hz
    channels: int


class FrontReader:
    """A source that can be looked at from its beginning, and then read from there."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._front = bytearray()  # looked at, not yet read
        self._left: int | None = None  # bytes until the end of the samples, where that is known

    def peek(self, size: int) -> bytes:
        """Return the first `size` bytes, fewer where the source ends before."""
        while len(self._front) < size:
            data = self._source.read(size - len(self._front))
            if not data:
                break
            self._front += data
        return bytes(self._front[:size])

    def read(self, size: int, /) -> bytes:
        if self._left is not None:
            size = min(size, self._left)
        if size == 0:
            return b""
        if self._front:
            data = bytes(self._front[:size])
            del self._front[:size]
        else:
            data = self._source.read(size)
        if self._left is not None:
            self._left -= len(data)
        return data

    def take_wav_header(self) -> RawFormat | None:
        """Read up to the first sample of a plain WAV; anything else is left as it is."""
        header: wav.WavHeader | int = 12  # or the bytes it takes to know more
        while isinstance(header, int):
            front = self.peek(header)
            if len(front) < header or not wav.may_be_wav(front):
                return None
            try:
                header = wav.parse_header(front)
            except AudioError:
                return None  # FFmpeg may know better
        is_plain = header.encoding in wav.ENCODINGS.values()
        if not is_plain or header.sample_rate == 0 or header.channels == 0:
            return None
        del self._front[: header.data_start]
        self._left = header.data_size
        return RawFormat(header.encoding.removeprefix("pcm_"), header.sample_rate, header.channels)

    def has_index_last(self) -> bool:
        """Return whether this is an MP4 with its samples in front of the index they need."""
        position = 0
        if self.peek(8)[4:] != b"ftyp":
            return False
        while position < MAX_INDEX_START:
            head = self.peek(position + 16)[position:]
            size, name = int.from_bytes(head[:4], "big"), head[4:8]
            if name in (b"moov", b"mdat", b"") or size < 8:
                return name == b"mdat"
            position += size
        return False


def explain_failure(head: bytes) -> str:
    """Return in one sentence why a file that begins like this could not be opened."""
    if not head:
        return "expected an audio file, got 0 bytes"
    if head[:4] in (b"RIFF", b"RF64") and head[8:16] == b"WAVEfmt " and len(head) >= 36:
        tag, channels, sample_rate = struct.unpack_from("<HHI", head, 20)
        if channels == 0:
            return "expected 1 or more channels, got a WAV header with 0"
        if sample_rate == 0:
            return "expected a sample rate above 0 Hz, got a WAV header with 0"
        return f"expected a WAV file that can be decoded, got one of format 0x{tag:04x} or damaged"
    if head[4:8] == b"ftyp":
        return "expected a whole MP4 file, got one without an index: it is cut off or damaged"
    return "expected an audio file, found no format that can be read"
