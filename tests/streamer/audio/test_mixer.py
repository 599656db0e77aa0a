import numpy as np
import pytest

from streamer.audio.mixer import Mixer
from tests.support.audio import tone

RATE = 16_000


def mix(*channels: np.ndarray, chunk: int = 0) -> np.ndarray:
    samples = np.stack(channels)
    mixer = Mixer(len(channels), RATE)
    pieces = [
        mixer.mix(samples[:, at : at + chunk])
        for at in range(0, samples.shape[1], chunk or samples.shape[1])
        if (chunk := chunk or samples.shape[1])
    ]
    return np.concatenate([*pieces, mixer.flush()])


def rms(samples: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(samples, dtype=np.float64))))


def test_one_channel_passes_unchanged() -> None:
    voice = tone(200, level=0.3)
    assert np.array_equal(mix(voice), voice)


def test_equal_channels_keep_their_level() -> None:
    voice = tone(200, level=0.3)
    assert np.allclose(mix(*[voice] * 8), voice, atol=1e-6)


@pytest.mark.parametrize("num_channels", [2, 6, 8])
def test_a_voice_in_one_channel_keeps_its_level(num_channels: int) -> None:
    voice = tone(200, level=0.3)
    silence = np.zeros_like(voice)
    for spoken in range(num_channels):
        channels = [voice if i == spoken else silence for i in range(num_channels)]
        assert rms(mix(*channels)) == pytest.approx(rms(voice), rel=0.01)


def test_opposite_phase_does_not_cancel() -> None:
    voice = tone(200, level=0.3)
    mixed = mix(voice, -voice)
    assert rms(mixed) == pytest.approx(rms(voice), rel=0.01)


def test_opposite_phase_after_another_sound_does_not_cancel() -> None:
    left = np.concatenate([tone(300, level=0.3), tone(200, 4, level=0.3)])
    right = np.concatenate([tone(300, level=0.3), -tone(200, 4, level=0.3)])
    mixed = mix(left, right)
    assert rms(mixed[-RATE:]) == pytest.approx(rms(left[-RATE:]), rel=0.02)


def test_two_speakers_are_both_heard_and_nothing_is_turned() -> None:
    left = np.concatenate([tone(200, level=0.3), np.zeros(RATE, np.float32)])
    right = np.concatenate([np.zeros(RATE, np.float32), tone(450, level=0.3)])
    mixed = mix(left, right)
    assert rms(mixed[:RATE]) == pytest.approx(rms(left[:RATE]), rel=0.02)
    # for a moment both count as loud, so the second is 2 dB lower at most
    assert rms(mixed[RATE:]) == pytest.approx(rms(right[RATE:]), rel=0.2)
    # each with its own sign
    assert float(mixed[:RATE] @ left[:RATE]) > 0
    assert float(mixed[RATE:] @ right[RATE:]) > 0


def test_loud_channels_are_limited_not_wrapped() -> None:
    loud = tone(200, level=1.0)
    other = tone(330, level=1.0)
    assert np.abs(mix(loud, other)).max() <= 1.0


@pytest.mark.parametrize("chunk", [1, 7, 799, 800, 801, 5000])
def test_chunk_sizes_do_not_change_the_mix(chunk: int) -> None:
    random = np.random.default_rng(1)
    channels = random.uniform(-0.5, 0.5, (3, 4001)).astype(np.float32)
    assert np.array_equal(mix(*channels, chunk=chunk), mix(*channels))
    assert len(mix(*channels, chunk=chunk)) == 4001
