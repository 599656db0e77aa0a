"""Mixing of many channels into one: nobody is lost, whatever channel they speak in.

A plain average cancels channels of opposite phase to nothing and lowers a voice that is in one
channel of eight by 18 dB. Here a channel's sign is turned where it would cancel the others, and the
mix is as loud as its loudest channel.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.api import Samples

BLOCKS_PER_SECOND = 20  # weights are renewed each 50 ms
POWER_DECAY = 0.95  # of the running powers, per block: about one second
# a sign is turned where that makes the mix ten times as strong; in between nothing changes,
# so that two people speaking at once do not make it flip
MIN_FLIP_GAIN = 10.0


class Mixer:
    """Mixes the channels of one source. Any chunk sizes give the same samples."""

    def __init__(self, num_channels: int, sample_rate: int) -> None:
        self.num_channels = num_channels
        self._block = max(1, sample_rate // BLOCKS_PER_SECOND)
        # what has not filled a block yet, (C, < block)
        self._rest = np.zeros((num_channels, 0), np.float32)
        # running sums of products, (C, C); its diagonal holds the channels' powers
        self._powers = np.zeros((num_channels, num_channels), np.float64)
        self._signs = np.ones(num_channels)
        # of the last block; None before the first, which starts at its own weights
        self._weights: npt.NDArray[np.float64] | None = None

    def mix(self, samples: Samples) -> Samples:
        """Mix (C, T) float32 to (T',) in [-1, 1]; up to a block waits inside for the next call."""
        if self.num_channels == 1:
            return samples.reshape(-1)
        samples = np.concatenate([self._rest, samples], axis=1)
        whole = samples.shape[1] // self._block * self._block
        self._rest = samples[:, whole:].copy()
        blocks = np.split(samples[:, :whole], whole // self._block, axis=1) if whole else []
        return np.concatenate([self._mix_block(block) for block in blocks] or [_NOTHING])

    def flush(self) -> Samples:
        """Mix what is left inside."""
        rest, self._rest = self._rest, self._rest[:, :0]
        return self._mix_block(rest) if rest.shape[1] else _NOTHING

    def _mix_block(self, block: Samples) -> Samples:
        wide = block.astype(np.float64)
        self._powers = POWER_DECAY * self._powers + wide @ wide.T
        for channel in range(1, self.num_channels):
            turned = self._signs.copy()
            turned[channel] = -turned[channel]
            if self._mixed_power(turned) > MIN_FLIP_GAIN * self._mixed_power(self._signs):
                self._signs = turned
        mixed = self._mixed_power(self._signs)
        loudest = float(self._powers.diagonal().max())
        gain = min(1.0, (loudest / mixed) ** 0.5) if mixed > 0 else 1.0 / self.num_channels
        weights = self._signs * gain
        before = weights if self._weights is None else self._weights
        self._weights = weights
        # from the last block's weights to this one's in a straight line, or there is a click
        ramp = np.linspace(0.0, 1.0, block.shape[1])
        mix = (before @ wide) * (1.0 - ramp) + (weights @ wide) * ramp
        return np.clip(mix, -1.0, 1.0).astype(np.float32)

    def _mixed_power(self, signs: npt.NDArray[np.float64]) -> float:
        return float(signs @ self._powers @ signs)


_NOTHING = np.zeros(0, np.float32)
