"""WAV headers; how the audio behind them is decoded is tested with streamer.audio.pcm."""

from __future__ import annotations

import struct

import pytest

from streamer.audio.error import AudioError
from streamer.audio.wav import WavHeader, may_be_wav, parse_header


@pytest.mark.parametrize("data", [b"", b"R", b"RIFF", b"RIFFxxxxW", b"RIFF\0\0\0\0WAVEfmt "])
def test_the_beginning_of_a_header_may_grow_to_one(data: bytes) -> None:
    assert may_be_wav(data)


@pytest.mark.parametrize("data", [b"x", b"RIFX", b"RIFF\0\0\0\0AVI ", b"\0\0RIFF"])
def test_other_bytes_may_not(data: bytes) -> None:
    assert not may_be_wav(data)


def test_an_extensible_header_hides_its_format_in_a_guid() -> None:
    guid = struct.pack("<H", 3) + bytes(14)
    fmt = struct.pack("<HHIIHHHHI", 0xFFFE, 2, 48_000, 384_000, 8, 32, 22, 32, 3) + guid
    data = b"RIFF\0\0\0\0WAVEfmt " + struct.pack("<I", len(fmt)) + fmt + b"data\0\0\0\0"
    for length in range(12, len(data)):
        needed = parse_header(data[:length])
        assert isinstance(needed, int) and length < needed <= len(data)
    header = parse_header(data)
    assert isinstance(header, WavHeader)
    assert (header.encoding, header.sample_rate, header.channels) == ("pcm_f32le", 48_000, 2)
    assert (header.data_start, header.data_size) == (len(data), None)


def test_data_without_a_format_is_refused() -> None:
    with pytest.raises(AudioError, match="fmt chunk"):
        parse_header(b"RIFF\0\0\0\0WAVEdata\4\0\0\0abcd")


def test_a_header_that_never_ends_is_refused() -> None:
    with pytest.raises(AudioError, match="below 1048576 bytes"):
        parse_header(b"RIFF\0\0\0\0WAVELIST\xff\xff\xff\xff")


def test_other_formats_are_named_by_their_tag() -> None:
    fmt = struct.pack("<HHIIHH", 2, 1, 8_000, 4_000, 1, 4)  # ADPCM
    header = parse_header(b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0" + fmt + b"data\0\0\0\0")
    assert isinstance(header, WavHeader) and header.encoding == "wav format 2, 4 bits"
