from __future__ import annotations

import io
from pathlib import Path

import av
import numpy as np
import pytest
import soundfile

from clients.audio_source import UnreadableAudio, open_audio, open_pipe, open_raw
from tests.support.audio import tone

RATE = 16_000


def _tone(rate: int = RATE, channels: int = 1, seconds: float = 1.0) -> np.ndarray:
    tones = [tone(440.0 * (c + 1), seconds, rate=rate, level=0.5) for c in range(channels)]
    return np.stack(tones, axis=1)


def _read(path: Path, *, split: bool = False) -> tuple[int, int, np.ndarray]:
    with open_audio(str(path), split_channels=split) as audio:
        samples = np.frombuffer(b"".join(audio.blocks), "<i2").astype(np.float32) / 32767
        return audio.sample_rate, audio.channels, samples.reshape(-1, audio.channels)


@pytest.mark.parametrize("suffix", ["wav", "flac", "ogg"])
def test_files_of_libsndfile_come_as_they_are(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"tone.{suffix}"
    soundfile.write(path, _tone(), RATE)
    rate, channels, samples = _read(path)
    assert (rate, channels) == (RATE, 1)
    assert abs(len(samples) - RATE) < 2500  # lossy codecs pad
    assert np.sqrt(np.mean(samples**2)) == pytest.approx(0.354, abs=0.03)


def test_everything_else_goes_through_ffmpeg(tmp_path: Path) -> None:
    path = tmp_path / "tone.m4a"
    with av.open(str(path), "w") as container:
        track = container.add_stream("aac", rate=48_000, layout="mono")
        for start in range(0, 48_000, 1024):
            block = _tone(48_000)[start : start + 1024].T.astype(np.float32)
            frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(block), "fltp", "mono")
            frame.sample_rate, frame.pts = 48_000, start
            container.mux(track.encode(frame))
        container.mux(track.encode(None))
    rate, channels, samples = _read(path)
    assert (rate, channels) == (48_000, 1)
    assert abs(len(samples) - 48_000) < 4096
    assert np.sqrt(np.mean(samples[2000:40_000] ** 2)) == pytest.approx(0.354, abs=0.02)


def test_rates_that_the_service_does_not_take_are_converted(tmp_path: Path) -> None:
    path = tmp_path / "studio.wav"
    soundfile.write(path, _tone(96_000), 96_000)
    rate, _, samples = _read(path)
    assert rate == 48_000 and abs(len(samples) - 48_000) < 100


def test_stereo_is_mixed_or_kept_apart(tmp_path: Path) -> None:
    path = tmp_path / "stereo.wav"
    stereo = _tone(channels=2)
    soundfile.write(path, stereo, RATE, subtype="FLOAT")
    _, channels, mixed = _read(path)
    assert channels == 1
    # two tones in turn of the same power: each at half of it
    np.testing.assert_allclose(mixed[:, 0], stereo.sum(axis=1) / np.sqrt(2), atol=1e-3)
    _, channels, apart = _read(path, split=True)
    assert channels == 2
    np.testing.assert_allclose(apart, stereo, atol=1e-4)


@pytest.mark.parametrize("gains", [(0, 1), (1, -1), (1, 1), (1, 0, 0, 0, 0, 0, 0, 0)])
def test_a_voice_is_as_loud_in_the_mix_as_in_its_channel(
    tmp_path: Path, gains: tuple[int, ...]
) -> None:
    path = tmp_path / "channels.wav"
    voice = _tone()
    soundfile.write(path, voice * np.array(gains), RATE, subtype="FLOAT")
    _, channels, mixed = _read(path)
    assert channels == 1
    assert np.sqrt(np.mean(mixed**2)) == pytest.approx(np.sqrt(np.mean(voice**2)), rel=0.02)


def test_what_is_no_number_becomes_silence(tmp_path: Path) -> None:
    path = tmp_path / "odd.wav"
    samples = np.zeros(RATE, np.float32)
    samples[[5, 6, 7]] = np.nan, np.inf, -np.inf
    soundfile.write(path, samples, RATE, subtype="FLOAT")
    assert not np.any(_read(path)[2])


def test_the_duration_is_known_before_reading(tmp_path: Path) -> None:
    path = tmp_path / "tone.wav"
    soundfile.write(path, _tone(seconds=2.5), RATE)
    with open_audio(str(path), split_channels=False) as audio:
        assert audio.duration_s == 2.5


def test_a_pipe_may_hold_any_container() -> None:
    pipe = io.BytesIO()
    soundfile.write(pipe, _tone(), RATE, format="FLAC")
    pipe.seek(0)
    with open_pipe(pipe, split_channels=False) as audio:
        assert audio.sample_rate == RATE
        assert len(b"".join(audio.blocks)) == pytest.approx(2 * RATE, abs=200)


def test_raw_samples_pass_through() -> None:
    data = bytes(range(256)) * 100
    audio = open_raw(io.BytesIO(data), sample_rate=8000, channels=1, sample_bytes=1)
    assert b"".join(audio.blocks) == data and audio.duration_s is None


@pytest.mark.parametrize("content", [b"", b"hello, this is text", b"\x89PNG\r\n\x1a\n" + bytes(99)])
def test_what_is_not_audio_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "odd.wav"
    path.write_bytes(content)
    with pytest.raises(UnreadableAudio, match="odd.wav"):
        _read(path)


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnreadableAudio, match="does not exist"):
        _read(tmp_path / "none.wav")
    with pytest.raises(UnreadableAudio, match="is a folder"):
        _read(tmp_path)
