"""Read WAV headers: of files, and in front of raw audio, since clients often send a file as it is.

Only the header is read here; whether it fits a declared format is for the caller to say.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from streamer.audio.error import AudioError

MAX_HEADER = 1 << 20  # bytes of chunks in front of the data; cover pictures are smaller
UNKNOWN_SIZE = 0x7FFF0000  # writers to a pipe put 0 or a value near 2**31 or 2**32 for "to the end"
LONG_SIZE = 0xFFFFFFFF  # RF64: the size stands in a chunk of its own
PCM, FLOAT, ALAW, MULAW, EXTENSIBLE = 0x0001, 0x0003, 0x0006, 0x0007, 0xFFFE  # tags (mmreg.h)
# by tag and bytes per sample: the names of streamer.audio.pcm, FFmpeg's but for the "pcm_"
ENCODINGS = {
    (PCM, 1): "pcm_u8",
    (PCM, 2): "pcm_s16le",
    (PCM, 3): "pcm_s24le",
    (PCM, 4): "pcm_s32le",
    (FLOAT, 4): "pcm_f32le",
    (FLOAT, 8): "pcm_f64le",
    (ALAW, 1): "alaw",
    (MULAW, 1): "mulaw",
}
# chunks that writers put behind the data (RIFF, EBU Tech 3285, and what editors add)
TRAILERS = frozenset(
    f"{name:4}".encode()
    for name in (
        *("LIST", "id3", "ID3", "cue", "plst", "smpl", "inst", "fact", "PEAK"),
        *("bext", "iXML", "aXML", "chna", "cart", "DISP", "JUNK", "PAD"),
    )
)


@dataclass(frozen=True, slots=True)
class WavHeader:
    """What a WAV header declares."""

    encoding: str  # of ENCODINGS, or "wav format N, B bits" for any other
    sample_rate: int  # Hz
    channels: int
    data_start: int  # bytes from the start of the file
    data_size: int | None  # bytes; None where the writer did not know


def may_be_wav(data: bytes) -> bool:
    """Return whether these first bytes are, or could still grow to be, a WAV header."""
    names = (b"RIFF", b"RF64", b"BW64")
    return any(name.startswith(data[:4]) for name in names) and b"WAVE".startswith(data[8:12])


def parse_header(data: bytes) -> WavHeader | int:
    """Read the header of a WAV file from its first bytes, 12 at least.

    Returns:
        The header, or the number of bytes that it takes to read on.

    Raises:
        AudioError: it starts like a WAV file but is broken, or its header exceeds MAX_HEADER.
    """
    position = 12
    encoding, channels, sample_rate, long_size = "", 0, 0, 0
    while (body := position + 8) <= MAX_HEADER:
        if body > len(data):
            return body
        name = data[position : body - 4]
        size = int.from_bytes(data[body - 4 : body], "little")
        if name == b"data":
            if not encoding:
                raise AudioError("expected a fmt chunk before the data of a wav header, got none")
            if size >= UNKNOWN_SIZE:
                size = long_size if size == LONG_SIZE else 0
            return WavHeader(encoding, sample_rate, channels, body, size or None)
        position = body + size + size % 2
        if name in (b"fmt ", b"ds64") and position <= MAX_HEADER:
            if position > len(data):
                return position
            if name == b"ds64" and size >= 16:
                long_size = int.from_bytes(data[body + 8 : body + 16], "little")
            elif name == b"fmt " and size >= 16:
                encoding, channels, sample_rate = _parse_format(data[body:position])
    raise AudioError(f"expected a wav header below {MAX_HEADER} bytes, got {position}")


def _parse_format(chunk: bytes) -> tuple[str, int, int]:
    tag, channels, sample_rate, _, align, bits = struct.unpack_from("<HHIIHH", chunk)
    if tag == EXTENSIBLE and len(chunk) >= 26:
        tag = int.from_bytes(chunk[24:26], "little")  # it stands in front of the GUID
    width = align // max(channels, 1) or bits // 8
    encoding = ENCODINGS.get((tag, width), f"wav format {tag}, {bits} bits")
    return encoding, channels, sample_rate


class DataChunks:
    """Picks the samples out of a WAV file that arrives in pieces, behind its first header.

    A declared length is taken at its word only where chunks of a WAV file, or another WAV file,
    follow it: recorders write a length for their first packet and then go on.
    """

    def __init__(self, size: int | None) -> None:
        """Begin behind a header.

        Args:
            size: bytes that it declares; None: samples up to the end of the stream.
        """
        self._left = size  # of the chunk that is being read
        self._is_skipping = False  # that chunk holds no samples
        self._is_odd = bool(size and size % 2)  # a byte of padding may follow it
        self._rest = b""  # at the end of a chunk, too little to tell what follows

    def take(self, data: bytes) -> bytes:
        """Return the samples in a piece."""
        data, self._rest, samples = self._rest + data, b"", b""
        while data and self._left is not None:
            if self._left:
                piece, data = data[: self._left], data[self._left :]
                self._left -= len(piece)
                samples += b"" if self._is_skipping else piece
            elif (found := self._look_behind(data)) is not None:
                data = found
            else:
                self._rest = data
                return samples
        return samples + data

    def _look_behind(self, data: bytes) -> bytes | None:
        """Begin what follows a chunk; None where it takes more bytes to know what that is."""
        for start in (0, 1) if self._is_odd else (0,):
            head = data[start : start + 12]
            if may_be_wav(head):
                if len(head) < 12:
                    return None
                header = parse_header(data[start:])
                if isinstance(header, int):
                    return None
                self._begin(header.data_size, is_skipping=False)
                return data[start + header.data_start :]
            if any(name.startswith(head[:4]) for name in TRAILERS):
                if len(head) < 8:
                    return None
                size = int.from_bytes(head[4:8], "little")
                self._begin(size + size % 2, is_skipping=True)
                return data[start + 8 :]
        self._left = None  # more samples than were declared
        return data

    def _begin(self, size: int | None, *, is_skipping: bool) -> None:
        self._left, self._is_skipping = size, is_skipping
        self._is_odd = bool(size and size % 2)
