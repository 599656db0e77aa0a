"""The log-mel spectrogram that Whisper takes as its input.

Follows whisper/audio.py and transformers' WhisperFeatureExtractor: the waveform, not the
spectrogram, is padded with zeros to 30 s. Frames that touch no audio are a known constant, so
they are not computed: a short window costs only its own length, and the result is the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.api import MAX_WINDOW

N_FFT = 400  # samples in a frame, 25 ms (whisper/audio.py)
HOP = 160  # samples between frames, 10 ms (whisper/audio.py)
HALF_FRAME = N_FFT // 2  # frames are centred: frame t covers samples 160 t - 200 to 160 t + 199
NUM_FRAMES = MAX_WINDOW // HOP  # the last frame of the transform is dropped
MIN_POWER = 1e-10  # whisper/audio.py
LOG_STEP = math.log(6.4) / 27.0  # Slaney's mel scale above 1 kHz, which is 15 mel
MAX_MEL = 15.0 + math.log(8.0) / LOG_STEP  # 8 kHz
# log10 of the power kept below the loudest point of a window (whisper/audio.py)
DYNAMIC_RANGE = 8.0


@dataclass(frozen=True, slots=True)
class Mel:
    """Log-mel spectrograms of a batch of windows, 30 s each, without their silent ends."""

    frames: Tensor  # (B, M, F) float32: the first F of 3000 columns
    floor: Tensor  # (B,) float32: what all columns from F on hold

    def dense(self, num_frames: int = NUM_FRAMES) -> Tensor:
        """Write the silent end out, up to num_frames columns: (B, M, num_frames)."""
        B, M, computed = self.frames.shape
        if computed >= num_frames:
            return self.frames[:, :, :num_frames]
        tail = self.floor.view(B, 1, 1).expand(B, M, num_frames - computed)
        return torch.cat([self.frames, tail], dim=2)


class LogMel:
    """Computes log-mel spectrograms with the filters of one model, on one device."""

    def __init__(self, num_mels: int, device: torch.device | str = "cpu") -> None:
        # on a GPU in float64: float32 sums would depend on the shape of the batch
        wide = torch.float64 if torch.device(device).type == "cuda" else torch.float32
        self._filters = mel_filters(num_mels).to(device, wide)  # (M, 201)
        self._window = torch.hann_window(N_FFT, device=device)

    def __call__(self, windows: Sequence[Tensor]) -> Mel:
        """Compute the spectrograms of some windows at once.

        Args:
            windows: each (T,) float32 in [-1, 1], 16 kHz, on the device, 0 < T <= MAX_WINDOW.

        Returns:
            As many columns as the longest window's audio touches.
        """
        longest = max(len(window) for window in windows)
        assert 0 < longest <= MAX_WINDOW, longest
        num_frames = min(count_frames(longest), NUM_FRAMES)
        # Only what the frames read, but enough of it to mirror the beginning.
        num_samples = min(max((num_frames - 1) * HOP + HALF_FRAME, HALF_FRAME + 1), MAX_WINDOW)
        audio = self._window.new_zeros(len(windows), num_samples)
        for row, window in zip(audio, windows, strict=True):
            row[: len(window)] = window
        # The transform mirrors both ends of the 30 s; the far end is silence unless it is reached.
        reaches_end = num_samples == MAX_WINDOW
        padding = (HALF_FRAME, HALF_FRAME if reaches_end else 0)
        audio = F.pad(audio.unsqueeze(1), padding, mode="reflect").squeeze(1)
        spectrum = torch.stft(
            audio, N_FFT, HOP, window=self._window, center=False, return_complex=True
        )[:, :, :num_frames]  # (B, 201, F)
        parts = torch.view_as_real(spectrum)
        power = parts.square().sum(dim=-1)
        power = (self._filters @ power.to(self._filters.dtype)).float()  # (B, M, F)
        log_power = power.clamp_(min=MIN_POWER).log10_()
        limit = log_power.amax(dim=(1, 2), keepdim=True) - DYNAMIC_RANGE
        frames = (torch.maximum(log_power, limit) + 4.0) / 4.0
        # a silent column has MIN_POWER everywhere
        floor = (limit.clamp(min=-10.0) + 4.0) / 4.0
        return Mel(frames, floor.view(-1))


def count_frames(num_samples: int) -> int:
    """Count the leading frames that touch the first num_samples samples."""
    return -(-(num_samples + HALF_FRAME) // HOP)


def mel_filters(num_mels: int) -> Tensor:
    """Compute the mel filter bank: (num_mels, 201) float32, area-normalised triangles up to 8 kHz.

    The same as librosa.filters.mel(sr=16000, n_fft=400, n_mels=num_mels), which is what
    whisper/assets/mel_filters.npz holds: Slaney's scale, linear below 1 kHz, logarithmic above.
    """
    frequencies = torch.linspace(0, 8000, N_FFT // 2 + 1, dtype=torch.float64)
    points = torch.linspace(0, MAX_MEL, num_mels + 2, dtype=torch.float64)
    linear = points * 200.0 / 3
    logarithmic = 1000.0 * torch.exp((points - 15.0) * LOG_STEP)
    edges = torch.where(points >= 15.0, logarithmic, linear)  # (M + 2,) Hz
    slopes = edges[:, None] - frequencies[None, :]  # (M + 2, 201)
    widths = edges.diff()[:, None]
    rising = -slopes[:-2] / widths[:-1]
    falling = slopes[2:] / widths[1:]
    triangles = torch.minimum(rising, falling).clamp(min=0)
    return (triangles * (2.0 / (edges[2:] - edges[:-2]))[:, None]).float()
