"""Attention, the one part of the model that differs between devices.

A backend owns the K/V pools and computes attention over them: `plan_*` once a step, then `run_*`
once a layer. Tokens of all rows lie packed one after another, without padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from engine.model.folded_tail import KeptPositions


@dataclass(frozen=True, slots=True)
class DecoderRow:
    """One sequence's share of a decoder step."""

    num_queries: int  # tokens of this step, at positions num_cached, num_cached + 1, ...
    num_cached: int  # positions whose self-attention K/V are in the pool already
    self_pages: tuple[int, ...]  # hold num_cached + num_queries positions or more
    cross_pages: tuple[int, ...]  # hold kept.num_positions
    kept: KeptPositions


class Attention(Protocol):
    """A way to compute attention, and the pools it reads. N is the sum of the rows' tokens.

    The pools' dummy rows, graphs and workspaces are the backend's own business.
    """

    def plan_encoder(self, kept_positions: Sequence[KeptPositions]) -> None:
        """Prepare an encode of these windows."""
        ...

    def run_encoder(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attend within each window, folded positions weighted: (N, H, D) each and back."""
        ...

    def store_cross(self, pages: Sequence[tuple[int, ...]], kv: Tensor) -> None:
        """Write the windows' cross-attention K/V, planned by plan_encoder, into their pages.

        Args:
            pages: of each window; a window without pages is left out.
            kv: (N, L, 2, H, D), L decoder layers.
        """
        ...

    def plan_decoder(self, rows: Sequence[DecoderRow]) -> None:
        """Prepare a decoder step over these rows."""
        ...

    def run_self(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Store k and v, then attend causally to all of each row's positions: (N, H, D)."""
        ...

    def run_cross(self, layer: int, q: Tensor) -> Tensor:
        """Attend to each row's window, folded positions weighted: (N, H, D)."""
        ...

    def read_cross_keys(
        self, layer: int, heads: Sequence[int], pages: tuple[int, ...], num_positions: int
    ) -> Tensor:
        """Read the cross-attention keys of some heads: (len(heads), num_positions, D)."""
        ...
