"""Recognise a WAV header at the head of raw sound: clients often send a file byte for byte.

Only the header is read here; whether it fits the declared format is for the caller to say.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

MAX_HEADER = 1 << 16  # bytes before the data chunk; LIST chunks of real files are a few kB
UNKNOWN_SIZE = 0x7FFF0000  # writers to a pipe put 0 or a value near 2**31 or 2**32 for "to the end"


@dataclass(frozen=True, slots=True)
class WavHeader:
    """What a WAV header declares."""

    encoding: str  # as in streamer.audio.ENCODINGS, or "wav format N, B bits" for any other
    sample_rate: int  # Hz
    channels: int
    data_start: int  # bytes from the start of the file
    data_size: int | None  # bytes; None where the writer did not know


def may_be_wav(data: bytes) -> bool:
    """Tell whether these first bytes are, or could still grow to be, a WAV header."""
    return b"RIFF".startswith(data[:4]) and b"WAVE".startswith(data[8:12])


def parse_header(data: bytes) -> WavHeader | None:
    """Read the header of a WAV file from its first bytes; None if it needs more of them.

    Raises:
        ValueError: it starts like a WAV file but is broken, or its header exceeds MAX_HEADER.
    """
    position = 12
    encoding, channels, sample_rate = "", 0, 0
    while position + 8 <= len(data):
        name, size = struct.unpack_from("<4sI", data, position)
        body = position + 8
        if name == b"data":
            if not encoding:
                raise ValueError("expected a fmt chunk before the data of a wav header, got none")
            known = 0 < size < UNKNOWN_SIZE
            return WavHeader(encoding, sample_rate, channels, body, size if known else None)
        if name == b"fmt " and size >= 16:
            if body + min(size, 26) > len(data):
                return None
            tag, channels, sample_rate, _, _, bits = struct.unpack_from("<HHIIHH", data, body)
            if tag == 0xFFFE and size >= 26:  # extensible: the tag stands in front of the GUID
                (tag,) = struct.unpack_from("<H", data, body + 24)
            encoding = _encoding(tag, bits)
        position = body + size + size % 2
        if position > MAX_HEADER:
            raise ValueError(f"expected a wav header below {MAX_HEADER} bytes, got {position}")
    return None


def _encoding(tag: int, bits: int) -> str:
    # format tags of mmreg.h
    match tag, bits:
        case (1, 16):
            return "pcm_s16le"
        case (3, 32):
            return "pcm_f32le"
        case (7, 8):
            return "mulaw"
        case (6, 8):
            return "alaw"
        case _:
            return f"wav format {tag}, {bits} bits"
