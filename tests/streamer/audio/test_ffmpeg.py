from __future__ import annotations

import io
from typing import Any

import av
import numpy as np
import pytest

from streamer.audio.ffmpeg import read_frames, to_float

LAYOUTS = {1: "mono", 2: "stereo", 6: "5.1", 8: "7.1"}


@pytest.mark.parametrize("channels", LAYOUTS)
@pytest.mark.parametrize(
    ("kind", "dtype", "one", "zero"),
    [
        ("u8", "u1", 127, 128),
        ("s16", "i2", 32767, 0),
        ("s32", "i4", 2**31 - 1, 0),
        ("flt", "f4", 1, 0),
        ("dbl", "f8", 1, 0),
    ],
)
def test_packed_samples_of_every_kind(
    kind: str, dtype: str, one: int, zero: int, channels: int
) -> None:
    wave = np.linspace(-1, 1, 50 * channels).reshape(50, channels)  # (T, C)
    packed = (wave * np.float64(one) + zero).astype(dtype).reshape(1, -1)
    frame = av.AudioFrame.from_ndarray(packed, format=kind, layout=LAYOUTS[channels])
    frame.sample_rate = 16_000
    samples = to_float(frame)
    assert samples.shape == (channels, 50) and samples.dtype == np.float32
    assert np.allclose(samples, wave.T, atol=0.02)  # 8 bits tell 1/128 apart


@pytest.mark.parametrize("channels", [1, 2, 6])
def test_planes(channels: int) -> None:
    planes = np.linspace(-1, 1, 50 * channels, dtype=np.float32).reshape(channels, 50)
    frame = av.AudioFrame.from_ndarray(planes, format="fltp", layout=LAYOUTS[channels])
    assert np.array_equal(to_float(frame), planes)


def test_eight_planes_do_not_crash() -> None:
    """PyAV 18 reads a ninth plane that is not there; here FFmpeg itself packs them."""
    packed = np.linspace(-1, 1, 400, dtype=np.float32).reshape(1, -1)
    frame = av.AudioFrame.from_ndarray(packed, format="flt", layout="7.1")
    frame.sample_rate = 16_000
    (planar,) = av.AudioResampler(format="fltp", layout="7.1", rate=16_000).resample(frame)
    assert planar.format.is_planar
    assert np.allclose(to_float(planar), packed.reshape(50, 8).T)


def test_what_is_not_finite_or_too_loud_is_cleaned() -> None:
    planes = np.array([[np.nan, np.inf, -np.inf, 1e30, -7.0, 0.5]], np.float32)
    frame = av.AudioFrame.from_ndarray(planes, format="fltp", layout="mono")
    assert to_float(frame).tolist() == [[0.0, 0.0, 0.0, 1.0, -1.0, 0.5]]


def wav_with_tag(tag: bytes) -> bytes:
    """Write 100 samples behind a title."""
    info = b"INFOINAM" + len(tag).to_bytes(4, "little") + tag
    chunks = (
        b"fmt \x10\0\0\0\x01\0\x01\0\x80>\0\0\0}\0\0\x02\0\x10\0"
        + (b"LIST" + len(info).to_bytes(4, "little") + info)
        + (b"data\xc8\0\0\0" + bytes(200))
    )
    return b"RIFF" + (4 + len(chunks)).to_bytes(4, "little") + b"WAVE" + chunks


def count_samples(data: bytes) -> int:
    return sum(frame.samples for frame in read_frames(io.BytesIO(data), None, data[:64]))


def test_a_tag_that_is_no_utf8_does_not_cost_the_audio() -> None:
    title = "caf\u00e9\u00e9".encode("latin-1") + b"\0"
    assert count_samples(wav_with_tag(title)) == 100


def test_pyav_19_is_not_asked_for_what_it_no_longer_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its `open` as its changelog describes it: no metadata_encoding, metadata_errors."""
    real, asked = av.open, []

    def open_19(
        file: Any,
        mode: str,
        format: str | None = None,
        options: dict[str, str] | None = None,
        container_options: dict[str, str] | None = None,
        buffer_size: int = 32768,
        timeout: object = None,
        io_open: object = None,
        hwaccel: object = None,
    ) -> Any:
        asked.append(mode)
        return real(file, mode, format, options, buffer_size=buffer_size)

    monkeypatch.setattr(av, "__version__", "19.0.0")
    monkeypatch.setattr(av, "open", open_19)
    assert count_samples(wav_with_tag(b"hi\0\0")) == 100
    assert asked == ["r"]
