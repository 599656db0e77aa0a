"""Bytes to samples."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.api import Samples
from streamer.audio.error import AudioError
from streamer.audio.pcm import AudioDecoder, AudioFormat
from tests.support.audio import pcm16, riff, tone


def decode(audio_format: AudioFormat, data: bytes, sizes: list[int]) -> list[Samples]:
    """Decode in packets of these sizes, used in turn."""
    decoder, pieces, position, i = AudioDecoder(audio_format), [], 0, 0
    while position < len(data):
        size = sizes[i % len(sizes)]
        pieces.append(decoder.decode(data[position : position + size]))
        position, i = position + size, i + 1
    pieces.append(decoder.flush())
    return [np.concatenate([p[c] for p in pieces]) for c in range(audio_format.channels)]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"encoding": "mp3"}, "pcm_s16le"),
        ({"sample_rate": 7_999}, "8000 to 48000"),
        ({"sample_rate": 96_000}, "8000 to 48000"),
        ({"channels": 3}, "channels to be 1 or 2, got 3"),
        ({"channels": 0}, "channels to be 1 or 2, got 0"),
    ],
)
def test_a_format_that_is_not_served_is_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AudioFormat(**fields)  # type: ignore[arg-type]


@settings(max_examples=30, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 5000), min_size=1, max_size=6),
    encoding=st.sampled_from(["pcm_s16le", "pcm_f32le", "mulaw", "alaw"]),
    rate=st.sampled_from([8_000, 11_025, 16_000, 24_000, 44_100, 48_000]),
    channels=st.sampled_from([1, 2]),
)
def test_packet_sizes_do_not_change_samples(
    sizes: list[int], encoding: str, rate: int, channels: int
) -> None:
    rng = np.random.default_rng(rate)
    if encoding == "pcm_f32le":
        data = (0.3 * rng.standard_normal(6000)).astype("<f4").tobytes()
    elif encoding == "pcm_s16le":
        data = rng.integers(-6000, 6000, 12_000).astype("<i2").tobytes()
    else:
        data = rng.integers(0, 64, 24_000).astype(np.uint8).tobytes()
    audio_format = AudioFormat(encoding, rate, channels)
    for whole, cut in zip(
        decode(audio_format, data, [len(data)]), decode(audio_format, data, sizes), strict=True
    ):
        assert len(whole) == pytest.approx(
            len(data) / audio_format.bytes_per_second * 16_000, abs=2
        )
        np.testing.assert_array_equal(whole, cut)


def test_an_incomplete_sample_waits_for_its_other_half() -> None:
    decoder = AudioDecoder(AudioFormat())
    assert len(decoder.decode(b"\x01")[0]) == 0
    np.testing.assert_allclose(decoder.decode(b"\x40\x02")[0], [0x4001 / 32768])
    assert len(decoder.flush()[0]) == 0


@pytest.mark.parametrize("rate", [8_000, 44_100, 48_000])
def test_a_tone_keeps_its_pitch_level_and_place(rate: int) -> None:
    (samples,) = decode(
        AudioFormat(sample_rate=rate), pcm16(tone(seconds=0.5, rate=rate, level=0.5)), [640]
    )
    expected = tone(seconds=0.5, level=0.5)
    inner = slice(800, -800)  # the filter rings where the tone is switched
    np.testing.assert_allclose(samples[: len(expected)][inner], expected[inner], atol=2e-3)


def test_channels_are_not_mixed() -> None:
    left, right = tone(seconds=0.5, level=0.5), tone(300.0, 0.5, level=0.5)
    data = pcm16(np.stack([left, right], axis=1))
    decoded = decode(AudioFormat(channels=2), data, [333])
    np.testing.assert_allclose(decoded[0], left, atol=1e-4)
    np.testing.assert_allclose(decoded[1], right, atol=1e-4)


def test_what_is_not_a_number_becomes_silence_and_too_loud_is_limited() -> None:
    bad = np.array([0.5, np.nan, np.inf, -np.inf, 1e30, -2.5], "<f4")
    (samples,) = decode(AudioFormat("pcm_f32le"), bad.tobytes(), [5])
    np.testing.assert_array_equal(samples, np.float32([0.5, 0, 0, 0, 1, -1]))


def test_resampled_floats_stay_in_range() -> None:
    square = np.sign(tone(1000.0, 0.5, rate=48_000)).astype("<f4")
    (samples,) = decode(AudioFormat("pcm_f32le", 48_000), square.tobytes(), [4096])
    assert np.abs(samples).max() <= 1.0


# python3.11 -c 'import audioop; print(audioop.ulaw2lin(CODES, 2), audioop.alaw2lin(CODES, 2))'
@pytest.mark.parametrize(
    ("encoding", "codes", "amplitudes"),
    [
        ("mulaw", [0x80, 0x00, 0xFF, 0x7F, 0xB5], [32124, -32124, 0, 0, 3260]),
        ("alaw", [0xAA, 0x2A, 0xD5, 0x55, 0x80], [32256, -32256, 8, -8, 5504]),
    ],
)
def test_telephone_codes(encoding: str, codes: list[int], amplitudes: list[int]) -> None:
    (samples,) = decode(AudioFormat(encoding, 16_000), bytes(codes), [2])
    np.testing.assert_array_equal(samples * 32768, amplitudes)


@pytest.mark.parametrize("sizes", [[1], [7], [4096], [1 << 20]])
def test_a_wav_header_is_skipped(sizes: list[int]) -> None:
    sound = tone(seconds=0.5, level=0.5)
    extra = struct.pack("<4sI", b"LIST", 2001) + b"x" * 2002  # odd sizes are padded
    tail = struct.pack("<4sI", b"LIST", 100) + b"\x7f" * 100
    for data in (
        riff(pcm16(sound)),
        riff(pcm16(sound), extra=extra, tail=tail),
        riff(pcm16(sound), size=0xFFFFFFFF),
        riff(pcm16(sound), size=0),
    ):
        (samples,) = decode(AudioFormat(), data, sizes)
        np.testing.assert_allclose(samples, sound, atol=1e-4)


@pytest.mark.parametrize(
    ("tag", "bits", "encoding"),
    [(1, 16, "pcm_s16le"), (3, 32, "pcm_f32le"), (7, 8, "mulaw"), (6, 8, "alaw")],
)
def test_a_wav_header_may_declare_any_served_encoding(tag: int, bits: int, encoding: str) -> None:
    audio_format = AudioFormat(encoding, 8_000)
    data = bytes(8_000 * bits // 8)
    (samples,) = decode(audio_format, riff(data, tag=tag, bits=bits, rate=8_000), [100])
    assert len(samples) == pytest.approx(16_000, abs=2)


@pytest.mark.parametrize(
    "header", [{"rate": 44_100}, {"channels": 2}, {"bits": 24}, {"tag": 7, "bits": 8}]
)
def test_a_wav_header_that_contradicts_the_format_is_refused(header: dict[str, int]) -> None:
    with pytest.raises(AudioError, match="expected .*got"):
        decode(AudioFormat(), riff(bytes(4000), **header), [4096])  # type: ignore[arg-type]


def test_a_header_that_never_ends_is_refused() -> None:
    endless = struct.pack("<4sI4s4sI", b"RIFF", 0, b"WAVE", b"junk", 1 << 30)
    with pytest.raises(AudioError, match="wav header"):
        AudioDecoder(AudioFormat()).decode(endless)


def test_sound_that_only_starts_like_a_header_is_sound() -> None:
    data = b"RIFF" + bytes(2000)
    (samples,) = decode(AudioFormat(), data, [3])
    assert len(samples) == len(data) // 2
    (short,) = decode(AudioFormat(), b"RI", [1])
    assert len(short) == 1


@pytest.mark.parametrize("sizes", [[1], [7], [4096], [1 << 20]])
def test_audio_behind_a_wav_header_with_a_short_length_is_kept(sizes: list[int]) -> None:
    audio = tone(seconds=1.0, level=0.5)
    first, rest = pcm16(audio[:4000]), pcm16(audio[4000:])
    tail = struct.pack("<4sI", b"LIST", 100) + b"\x7f" * 100
    for data in (
        riff(first) + rest,
        riff(first) + riff(rest),  # a file a packet
        riff(first, tail=tail) + rest,
    ):
        (samples,) = decode(AudioFormat(), data, sizes)
        np.testing.assert_allclose(samples, audio, atol=1e-4)
