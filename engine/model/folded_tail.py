"""Which of the encoder's 1,500 positions a window keeps: the folded tail.

Whisper was trained on 30 s with silence after the audio. Without the silence the model sees
something else, and it loops or hallucinates. So the silence stays, but it is folded: only every
r-th of its positions is computed, and each counts r times. For that, log r is added to its
attention logits, in the encoder's self-attention and in the decoder's cross-attention. Each
position keeps its own positional embedding.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

SAMPLES_PER_POSITION = 320  # 20 ms: two mel frames of 160 samples, joined by the second convolution


@dataclass(frozen=True, slots=True)
class KeptPositions:
    """The encoder positions of one window: the first num_full ones, then one in `weight`."""

    num_full: int  # at full resolution: the audio and a margin
    num_folded: int = 0  # that stand for the silence after them
    weight: int = 1  # silent positions that each of those stands for

    @property
    def num_positions(self) -> int:
        return self.num_full + self.num_folded

    def positions(self, device: torch.device | str = "cpu") -> Tensor:
        """Return the kept positions, ascending: (num_positions,) int64."""
        full = torch.arange(self.num_full, device=device)
        if not self.num_folded:
            return full
        # the position halfway through each group stands for it
        first = self.num_full + self.weight // 2
        folded = first + self.weight * torch.arange(self.num_folded, device=device)
        return torch.cat([full, folded])


def choose_positions(
    num_samples: int, *, factor: int | None, margin: int, num_positions: int = 1500
) -> KeptPositions:
    """Choose the positions of a window.

    Args:
        num_samples: of audio, 1 to 480,000.
        factor: silent positions folded into one; None keeps all ("full").
        margin: positions of silence kept at full resolution after the audio.
        num_positions: of the whole 30 s.
    """
    if factor is None:
        return KeptPositions(num_positions)
    num_audio = -(-num_samples // SAMPLES_PER_POSITION)
    num_folded = (num_positions - min(num_audio + margin, num_positions)) // factor
    if not num_folded:
        return KeptPositions(num_positions)
    # whole groups only, so that all of the silence is counted, and counted once
    return KeptPositions(num_positions - num_folded * factor, num_folded, factor)
