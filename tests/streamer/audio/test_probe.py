from __future__ import annotations

import io
import struct

import pytest

from streamer.audio.probe import FrontReader, RawFormat, explain_failure


def header(
    *, tag: int = 1, channels: int = 1, rate: int = 16_000, width: int = 2, chunks: bytes = b""
) -> bytes:
    align = channels * width
    body = struct.pack("<HHIIHH", tag, channels, rate, rate * align, align, 8 * width)
    return b"RIFF\x00\x00\x00\x00WAVEfmt \x10\x00\x00\x00" + body + chunks


class Trickle:
    """Returns one byte at a time, and cannot seek."""

    def __init__(self, data: bytes) -> None:
        self._file = io.BytesIO(data)

    def read(self, size: int, /) -> bytes:
        return self._file.read(min(1, size))


def read_all(reader: FrontReader) -> bytes:
    return b"".join(iter(lambda: reader.read(7), b""))


def test_a_plain_header_is_taken_and_the_samples_are_left() -> None:
    odd = b"note\x03\x00\x00\x00abc\x00"  # chunks are padded to even lengths
    data = header(chunks=odd) + b"data\x04\x00\x00\x00" + b"\x01\x02\x03\x04" + b"LIST...."
    reader = FrontReader(Trickle(data))
    assert reader.take_wav_header() == RawFormat("s16le", 16_000, 1)
    assert read_all(reader) == b"\x01\x02\x03\x04"


@pytest.mark.parametrize("size", [0, 0xFFFFFFFF])
def test_an_unknown_length_reads_to_the_end(size: int) -> None:
    reader = FrontReader(Trickle(header() + b"data" + size.to_bytes(4, "little") + b"12345678"))
    assert reader.take_wav_header() is not None
    assert read_all(reader) == b"12345678"


def test_rf64_has_its_length_in_a_chunk_of_its_own() -> None:
    long = b"ds64\x1c\x00\x00\x00" + struct.pack("<QQQI", 0, 4, 2, 0)
    plain = header()
    data = b"RF64" + plain[4:12] + long + plain[12:] + b"data\xff\xff\xff\xff" + b"1234tail"
    reader = FrontReader(Trickle(data))
    assert reader.take_wav_header() == RawFormat("s16le", 16_000, 1)
    assert read_all(reader) == b"1234"


def test_an_extensible_header_names_its_format_inside() -> None:
    inner = struct.pack("<HHI", 22, 32, 3) + struct.pack("<H", 3) + bytes(14)
    body = struct.pack("<HHIIHH", 0xFFFE, 2, 48_000, 384_000, 8, 32) + inner
    data = b"RIFF\x00\x00\x00\x00WAVEfmt " + len(body).to_bytes(4, "little") + body
    reader = FrontReader(Trickle(data + b"data\x00\x00\x00\x00"))
    assert reader.take_wav_header() == RawFormat("f32le", 48_000, 2)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"OggS" + bytes(100),
        header(tag=0x55) + b"data\x04\x00\x00\x001234",  # MP3 in WAV is left to FFmpeg
        header(rate=0) + b"data\x04\x00\x00\x001234",
        header(channels=0) + b"data\x04\x00\x00\x001234",
        header(),
        header(chunks=b"LIST\xff\xff\xff\xff"),
        b"RIFF\x00\x00\x00\x00WAVEdata\x04\x00\x00\x001234",
    ],
)
def test_everything_else_is_left_as_it_is(data: bytes) -> None:
    reader = FrontReader(Trickle(data))
    assert reader.take_wav_header() is None
    assert read_all(reader) == data


def box(name: bytes, size: int) -> bytes:
    return size.to_bytes(4, "big") + name + bytes(size - 8)


@pytest.mark.parametrize(
    ("data", "is_last"),
    [
        (box(b"ftyp", 24) + box(b"moov", 100) + box(b"mdat", 50), False),
        (box(b"ftyp", 24) + box(b"free", 8) + box(b"mdat", 50) + box(b"moov", 100), True),
        (box(b"ftyp", 24), False),
        (b"OggS" + bytes(50), False),
        (b"", False),
    ],
)
def test_where_the_index_of_an_mp4_is(data: bytes, is_last: bool) -> None:
    reader = FrontReader(Trickle(data))
    assert reader.has_index_last() is is_last
    assert read_all(reader) == data


def test_failures_are_explained() -> None:
    assert "0 bytes" in explain_failure(b"")
    assert "0x0055" in explain_failure(header(tag=0x55) + bytes(20))
    assert "channels" in explain_failure(header(channels=0) + bytes(20))
    assert "index" in explain_failure(box(b"ftyp", 24))
    assert "no format" in explain_failure(b"hello, world")
