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

MAX_WAV_HEADER = 1 << 20  # bytes of chunks in front of the data; cover pictures are smaller
PCM, FLOAT, ALAW, MULAW, EXTENSIBLE = 0x0001, 0x0003, 0x0006, 0x0007, 0xFFFE  # tags (mmreg.h)
# by format tag and bytes per sample, FFmpeg's names
ENCODINGS = {
    (PCM, 1): "u8",
    (PCM, 2): "s16le",
    (PCM, 3): "s24le",
    (PCM, 4): "s32le",
    (FLOAT, 4): "f32le",
    (FLOAT, 8): "f64le",
    (ALAW, 1): "alaw",
    (MULAW, 1): "mulaw",
}


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
        """Give the first `size` bytes, fewer where the source ends before."""
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
        front = self.peek(12)
        if front[:4] not in (b"RIFF", b"RF64", b"BW64") or front[8:12] != b"WAVE":
            return None
        raw: RawFormat | None = None
        long_bytes: int | None = None  # RF64 keeps the data's length in a chunk of its own
        position = 12
        while position < MAX_WAV_HEADER:
            head = self.peek(position + 8)[position:]
            if len(head) < 8:
                return None
            name, size = head[:4], int.from_bytes(head[4:], "little")
            position += 8
            if name == b"data":
                if raw is not None:
                    del self._front[:position]
                    length = long_bytes if size == 0xFFFFFFFF else size
                    # a writer into a pipe leaves 0 or the largest number: not known
                    self._left = length if length not in (0, 0xFFFFFFFF) else None
                return raw
            if size > MAX_WAV_HEADER:
                return None
            body = self.peek(position + size)[position:]
            if name == b"fmt " and len(body) >= 16:
                raw = _parse_format(body)
            elif name == b"ds64" and len(body) >= 16:
                long_bytes = int.from_bytes(body[8:16], "little")
            position += size + size % 2
        return None

    def has_index_last(self) -> bool:
        """Tell whether this is an MP4 with its samples in front of the index they need."""
        position = 0
        if self.peek(8)[4:] != b"ftyp":
            return False
        while position < MAX_WAV_HEADER:
            head = self.peek(position + 16)[position:]
            size, name = int.from_bytes(head[:4], "big"), head[4:8]
            if name in (b"moov", b"mdat", b"") or size < 8:
                return name == b"mdat"
            position += size
        return False


def explain_failure(head: bytes) -> str:
    """Say in one sentence why a file that begins like this could not be opened."""
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


def _parse_format(body: bytes) -> RawFormat | None:
    tag, channels, sample_rate, _, align, _ = struct.unpack_from("<HHIIHH", body)
    if tag == EXTENSIBLE and len(body) >= 26:
        tag = int.from_bytes(body[24:26], "little")  # the sub-format begins with its tag
    encoding = ENCODINGS.get((tag, align // channels if channels else 0))
    return RawFormat(encoding, sample_rate, channels) if encoding and sample_rate else None
