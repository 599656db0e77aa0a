"""Containers, whole and in pieces. What FFmpeg writes is what FFmpeg's users will send."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer.audio.container import MAX_HELD, ContainerDecoder, decode
from streamer.audio.error import AudioError
from streamer.audio.probe import RawFormat
from tests.support.audio import riff, tone
from tests.support.bombs import FLAC_BLOCK, flac_bomb
from tests.support.containers import encode
from tests.support.recordings import SPEECH

RATE = 16_000


def encode_tone(
    container: str, codec: str, rate: int = 48_000, seconds: float = 2.0, channels: int = 1
) -> bytes:
    samples = tone(seconds=seconds, rate=rate)
    return encode(container, codec, *[samples] * channels, rate=rate)


def wav(samples: np.ndarray, **header: Any) -> bytes:
    """Write a WAV whose header does not know the length, as of a stream."""
    channels = 1 if samples.ndim == 1 else samples.shape[1]
    bits = 8 * samples.dtype.itemsize
    data = samples.tobytes()
    return riff(data, channels=channels, bits=bits, riff_size=0xFFFFFFFF, **header)


def pull(data: bytes, channels: int | None = 1, raw: RawFormat | None = None) -> list[np.ndarray]:
    blocks = list(decode(io.BytesIO(data), channels=channels, raw=raw))
    return [np.concatenate(rows) for rows in zip(*blocks, strict=True)]


def push(
    data: bytes, chunk: int, channels: int | None = 1, raw: RawFormat | None = None
) -> list[np.ndarray]:
    with ContainerDecoder(channels=channels, raw=raw) as decoder:
        blocks = [
            block
            for at in range(0, len(data), chunk)
            for block in decoder.feed(data[at : at + chunk])
        ]
        blocks += decoder.flush()
    return [np.concatenate(rows) for rows in zip(*filter(None, blocks), strict=True)]


LIVE = [
    ("webm", "libopus"),
    ("ogg", "libopus"),
    ("flac", "flac"),
    ("mp3", "libmp3lame"),
    ("adts", "aac"),
    ("wav", "pcm_s16le"),
]


@pytest.mark.parametrize(("container", "codec"), LIVE)
def test_pieces_give_what_the_whole_gives(container: str, codec: str) -> None:
    data = encode_tone(container, codec)
    (whole,) = push(data, len(data))
    assert len(whole) / RATE == pytest.approx(2.0, abs=0.1)
    for chunk in (13, 999, 4000):
        assert np.array_equal(push(data, chunk)[0], whole)


@pytest.mark.parametrize(("container", "codec"), LIVE)
def test_a_stream_sounds_like_the_file(container: str, codec: str) -> None:
    data = encode_tone(container, codec)
    streamed, file = push(data, 4000)[0], pull(data)[0]
    length = min(len(streamed), len(file))
    assert length / RATE == pytest.approx(2.0, abs=0.05)
    assert np.allclose(streamed[:length], file[:length], atol=1e-4)
    # and like the tone that was written: a 440 Hz sine of 0.4
    spectrum = np.abs(np.fft.rfft(file[4000:20000]))
    assert np.argmax(spectrum) == 440
    assert np.sqrt(np.mean(file[4000:20000] ** 2)) == pytest.approx(0.28, abs=0.03)


@pytest.mark.parametrize(
    ("container", "codec", "bound_s"),
    [
        ("webm", "libopus", 1.1),
        ("ogg", "libopus", 1.1),
        ("mp3", "libmp3lame", 1.5),
        ("adts", "aac", 1.5),
        ("flac", "flac", 1.5),
        ("wav", "pcm_s16le", 0.1),
    ],
)
def test_sound_comes_out_long_before_the_end(container: str, codec: str, bound_s: float) -> None:
    data = encode_tone(container, codec, seconds=10.0)
    with ContainerDecoder() as decoder:
        for at in range(0, len(data), 100):
            blocks = list(decoder.feed(data[at : at + 100]))
            if blocks and len(blocks[0][0]):
                break
    assert at / len(data) * 10.0 < bound_s


def test_a_streamed_header_of_unknown_length_is_read_to_the_end() -> None:
    samples = (tone() * 32767).astype("<i2")
    for size in (0xFFFFFFFF, 0):
        (decoded,) = push(wav(samples, size=size), 777)
        assert np.array_equal(decoded, samples.astype(np.float32) / 32768)


def test_chunks_after_the_data_of_a_wav_are_not_sound() -> None:
    samples = (tone() * 32767).astype("<i2")
    data = wav(samples, tail=b"LIST\x00\x10\x00\x00" + b"\x7f" * 4096)
    assert len(push(data, 500)[0]) == len(pull(data)[0]) == len(samples)


@pytest.mark.parametrize(
    ("dtype", "tag", "scale", "offset"),
    [
        ("u1", 1, 127, 128),
        ("<i2", 1, 32767, 0),
        ("<i4", 1, 2**31 - 1, 0),
        ("<f4", 3, 1, 0),
        ("<f8", 3, 1, 0),
    ],
)
def test_every_sample_format_of_wav(dtype: str, tag: int, scale: int, offset: int) -> None:
    samples = (tone() * np.float64(scale) + offset).astype(dtype)
    for decoded in (pull(wav(samples, tag=tag))[0], push(wav(samples, tag=tag), 1000)[0]):
        assert np.allclose(decoded, tone(), atol=0.02)


def test_not_a_number_becomes_silence_and_the_rest_stays() -> None:
    samples = tone()
    samples[100], samples[200], samples[300], samples[400] = np.nan, np.inf, -np.inf, 1e30
    for decoded in (pull(wav(samples, tag=3))[0], push(wav(samples, tag=3), 4000)[0]):
        assert np.isfinite(decoded).all() and np.abs(decoded).max() <= 1.0
        assert list(decoded[[100, 200, 300, 400]]) == [0.0, 0.0, 0.0, 1.0]
        assert np.array_equal(decoded[1000:], tone()[1000:])


def test_two_channels_stay_apart_where_asked_for() -> None:
    stereo = np.stack([tone(), tone(frequency_hz=300)], axis=1).astype("<f4")
    for channels in (2, None):
        left, right = push(wav(stereo, tag=3), 1000, channels=channels)
        assert np.array_equal(left, tone())
        assert np.array_equal(right, tone(frequency_hz=300))


def test_opposite_phase_is_heard() -> None:
    stereo = np.stack([tone(), -tone()], axis=1).astype("<f4")
    (mixed,) = pull(wav(stereo, tag=3))
    assert np.sqrt(np.mean(mixed**2)) == pytest.approx(0.4 / np.sqrt(2), rel=0.02)


def test_a_stream_may_go_on_with_other_channels_or_another_rate() -> None:
    mono, stereo = encode_tone("adts", "aac"), encode_tone("adts", "aac", channels=2, rate=44_100)
    for read in (pull, lambda data, channels: push(data, 999, channels)):
        (mixed,) = read(mono + stereo, None)
        assert len(mixed) / RATE == pytest.approx(4.0, abs=0.2)
        # two channels cannot go on as one
        apart = read(stereo + mono, None)
        assert len(apart) == 2 and len(apart[0]) / RATE == pytest.approx(2.0, abs=0.2)


def test_what_follows_the_damage_is_heard() -> None:
    data = bytearray(encode_tone("adts", "aac", seconds=6.0))
    random = np.random.default_rng(5)
    for at in range(len(data) // 3, len(data) // 3 + 2000, 50):
        data[at] = int(random.integers(256))
    for samples in (pull(bytes(data))[0], push(bytes(data), 1000)[0]):
        assert len(samples) / RATE > 5.0


def test_other_numbers_of_channels_than_asked_for_are_refused() -> None:
    with pytest.raises(AudioError, match="expected 2 channels, got 1"):
        pull(wav(tone(), tag=3), channels=2)
    many = np.zeros((1000, 3), "<f4")
    assert len(pull(wav(many, tag=3), channels=None)) == 1


def test_raw_samples_need_to_be_declared() -> None:
    data = (tone() * 32767).astype("<i2").tobytes()
    with pytest.raises(AudioError):
        pull(data)
    (decoded,) = push(data, 333, raw=RawFormat("s16le", RATE, 1))
    assert np.allclose(decoded, tone(), atol=1e-4)
    assert np.array_equal(pull(data, raw=RawFormat("s16le", RATE, 1))[0], decoded)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "got 0 bytes"),
        (b"hello, this is text and no sound", "no format that can be read"),
        (b"\x89PNG\r\n\x1a\n" + bytes(1000), "no format that can be read"),
        (b"#EXTM3U\n#EXTINF:10,\nhttp://127.0.0.1:1/secret.ts\n", "no format that can be read"),
        (b"ffconcat version 1.0\nfile '/etc/passwd'\n", "no format that can be read"),
        (wav(np.zeros(100, "<i2"), rate=0), "sample rate above 0"),
        (wav(np.zeros(100, "<i2"), rate=100), "sample rate from 4000"),
        (wav(np.zeros((100, 0), "<i2")), "1 or more channels"),
        (wav(np.zeros(100, "<i2"), tag=0x4242), "cannot|that can be decoded"),
        (wav(np.zeros(0, "<i2")), "found none"),
        (encode_tone("webm", "libopus")[2000:], "no format that can be read"),
        (encode_tone("mp3", "libmp3lame")[:100], "expected"),
        (encode_tone("mp4", "aac")[:2000], "cut off"),
    ],
)
def test_what_is_no_audio_is_refused_with_a_sentence(data: bytes, message: str) -> None:
    with pytest.raises(AudioError, match=message):
        pull(data)
    with pytest.raises(AudioError, match=message):
        push(data, 500)


def test_an_mp4_with_its_index_last_comes_at_the_end() -> None:
    data = encode_tone("mp4", "aac")
    assert data.index(b"moov") > data.index(b"mdat")
    with ContainerDecoder() as decoder:
        for at in range(0, len(data), 4000):
            assert not list(decoder.feed(data[at : at + 4000]))
        ((samples,),) = decoder.flush()
    assert np.array_equal(samples, pull(data)[0])


def test_very_much_audio_is_decoded_no_faster_than_it_is_taken() -> None:
    """A kilobyte of silence is an hour and a half, which must not wait in memory."""
    before = threading.active_count()
    with ContainerDecoder() as decoder:
        blocks = decoder.feed(flac_bomb(100_000))
        lengths = [len(next(blocks)[0]) for _ in range(20)]
        assert max(lengths) <= MAX_HELD + FLAC_BLOCK
        assert sum(lengths) > 100 * RATE
    assert threading.active_count() == before  # seven hours are still in it


def test_leaving_early_ends_the_thread() -> None:
    before = threading.active_count()
    for _ in range(5):
        with ContainerDecoder() as decoder:
            decoder.feed(encode_tone("ogg", "libopus")[:1500])
        with ContainerDecoder():
            pass
    assert threading.active_count() == before


def test_a_file_stays_open_and_is_read_in_blocks() -> None:
    data = wav(np.tile((tone() * 32767).astype("<i2"), 60))
    file = io.BytesIO(data)
    lengths = [len(block[0]) for block in decode(file)]
    assert sum(lengths) == 60 * RATE and max(lengths) <= RATE
    assert not file.closed


@settings(max_examples=60, deadline=None)
@given(data=st.data(), kind=st.sampled_from(LIVE))
def test_damage_gives_sound_or_a_sentence(data: st.DataObject, kind: tuple[str, str]) -> None:
    audio = bytearray(_ENCODED[kind])
    for _ in range(data.draw(st.integers(1, 8))):
        audio[data.draw(st.integers(0, len(audio) - 1))] = data.draw(st.integers(0, 255))
    del audio[data.draw(st.integers(0, len(audio))) :]
    for read in (pull, lambda sound: push(sound, 1500)):
        try:
            (samples,) = read(bytes(audio))
        except AudioError:
            continue
        assert np.isfinite(samples).all() and len(samples) < 60 * RATE


_ENCODED = {
    (container, codec): encode_tone(container, codec, seconds=0.5) for container, codec in LIVE
}


def _rows() -> list[dict[str, object]]:
    manifest = SPEECH / "manifest.jsonl"
    if not manifest.is_file():
        return []
    rows = [json.loads(line) for line in manifest.read_text().splitlines()]
    return [row for row in rows if row["category"] in ("container", "corrupt")]


@pytest.mark.skipif(not _rows(), reason="the speech data is not on this machine")
@pytest.mark.parametrize(
    "read", [pull, lambda data, raw: push(data, 1777, raw=raw)], ids=["file", "stream"]
)
@pytest.mark.parametrize("row", _rows(), ids=lambda row: Path(row["file"]).name)
def test_recordings_in_every_container(
    row: dict[str, str | float], read: Callable[..., list[np.ndarray]]
) -> None:
    path = SPEECH / str(row["file"])
    raw = RawFormat("s16le", RATE, 1) if path.suffix == ".pcm" else None
    expected = str(row["expect"]).split(" or ")
    try:
        (samples,) = read(path.read_bytes(), raw=raw)
    except AudioError as error:
        assert "error" in expected, error
        return
    assert expected != ["error"]
    assert np.isfinite(samples).all()
    seconds = float(row["duration_s"])
    assert len(samples) / RATE == pytest.approx(seconds, abs=0.15)
    if "text" in expected:
        assert np.sqrt(np.mean(samples**2)) > 0.01


@pytest.mark.parametrize(("container", "codec"), [("flac", "flac"), ("webm", "libopus")])
def test_a_file_said_to_be_raw_is_what_its_first_bytes_name(container: str, codec: str) -> None:
    data = encode(container, codec, tone(seconds=1.0, rate=48_000), rate=48_000)
    blocks = list(decode(io.BytesIO(data), raw=RawFormat("s16le", 16_000, 1)))
    assert sum(len(block) for (block,) in blocks) == pytest.approx(16_000, abs=1000)
