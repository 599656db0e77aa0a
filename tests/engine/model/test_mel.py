"""The spectrogram against transformers' WhisperFeatureExtractor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from engine.api import MAX_WINDOW
from engine.model.mel import NUM_FRAMES, LogMel, count_frames, mel_filters


def noise(num_samples: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(num_samples, generator=generator) * 0.1


@pytest.mark.parametrize("num_mels", [80, 128])
def test_filters_equal_the_reference(
    feature_extractor: Callable[[int], Any], num_mels: int
) -> None:
    expected = feature_extractor(num_mels).mel_filters.T
    np.testing.assert_allclose(mel_filters(num_mels).numpy(), expected, atol=1e-8)


@pytest.mark.parametrize("num_mels", [80, 128])
# about the mirrored beginning, about a frame, at both sides of the mirrored end
@pytest.mark.parametrize(
    "num_samples",
    [1, 100, 199, 200, 201, 359, 360, 361, 16_000, 479_639, 479_640, 479_800, 479_801, 480_000],
)
def test_spectrogram_equals_the_reference(
    feature_extractor: Callable[[int], Any], num_mels: int, num_samples: int
) -> None:
    audio = noise(num_samples)
    expected = feature_extractor(num_mels)(
        audio.numpy(), sampling_rate=16_000, return_tensors="pt"
    ).input_features[0]
    torch.testing.assert_close(LogMel(num_mels)([audio]).dense()[0], expected, atol=1e-5, rtol=0)


def test_spectrogram_of_speech_equals_the_reference(
    feature_extractor: Callable[[int], Any], recordings: list[Any]
) -> None:
    # FLAC and WAV of all kinds of speech, noise and music
    clips = [r for r in recordings if r.category not in ("container", "corrupt")][::15]
    assert len(clips) > 10
    log_mel = LogMel(80)
    for clip in clips:
        audio = clip.read()[:MAX_WINDOW]
        expected = feature_extractor(80)(
            audio, sampling_rate=16_000, return_tensors="pt"
        ).input_features
        mel = log_mel([torch.from_numpy(audio)])
        torch.testing.assert_close(mel.dense(), expected, atol=2e-5, rtol=0)


def test_a_batch_gives_what_each_window_gives_alone() -> None:
    log_mel = LogMel(80)
    windows = [noise(n, seed=n) for n in (1, 48_000, 5_000, 480_000, 200)]
    batch = log_mel(windows).dense()
    for row, window in zip(batch, windows, strict=True):
        torch.testing.assert_close(row, log_mel([window]).dense()[0], atol=1e-6, rtol=0)


def test_only_frames_that_touch_audio_are_computed() -> None:
    assert LogMel(80)([noise(16_000)]).frames.shape == (1, 80, count_frames(16_000))
    assert count_frames(16_000) == 102
    assert LogMel(80)([noise(480_000)]).frames.shape == (1, 80, NUM_FRAMES)


def test_silence_is_one_value_everywhere() -> None:
    mel = LogMel(80)([torch.zeros(16_000)]).dense()
    assert mel.unique().tolist() == [-1.5]  # (log10(1e-10) + 4) / 4


def test_dense_can_be_cut_short() -> None:
    mel = LogMel(80)([noise(16_000)])
    assert torch.equal(mel.dense(50), mel.dense()[:, :, :50])
    assert torch.equal(mel.dense(500), mel.dense()[:, :, :500])
