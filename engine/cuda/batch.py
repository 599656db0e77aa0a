"""How a decoder step is laid out for a captured graph: sizes, rows and tiles.

A graph has a fixed number of tokens; a step uses the smallest that holds its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

TILE_TOKENS = 16  # tokens of one sequence that read its keys together
ROW_FIELDS = 8  # slot, first token, count, first sampled, start, limit, probe
TILE_FIELDS = 4  # the row's first token, the tile's first, count, slot
KEEP = (
    -1
)  # as start: go on where the slot stands, else 0; as a token: the one the slot sampled last
TOKEN_INTS = ROW_FIELDS + 3 + TILE_FIELDS  # of a step's input, for each token of its size

Ints = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Row:
    """What one sequence brings to a step."""

    slot: int
    tokens: Sequence[int]  # to read; KEEP for the one the slot sampled last
    first_sampled: int  # of those: from here on one is sampled after each; their count for none
    starts: bool  # at position 0, nothing sampled yet; else it goes on where it stands
    limit: int  # positions that it may fill
    probe: int = -1  # of its tokens: the start of transcript; -1 if it is not among them
    temperature: float = 0.0
    seed: int = 0  # of its noise; what is drawn at a position depends on nothing else


@dataclass(frozen=True, slots=True)
class Inputs:
    """The device's view of a step's input, which is one tensor so that one copy brings it."""

    rows: Tensor  # (N, ROW_FIELDS) int32; unused ones have count 0
    given: Tensor  # (N,) int32
    temperatures: Tensor  # (N,) float32
    seeds: Tensor  # (N,) int32
    tiles: Tensor  # (N, TILE_FIELDS) int32; unused ones have count 0


def view_inputs(packed: Tensor) -> Inputs:
    """View a packed input as its parts: (TOKEN_INTS * N,) int32."""
    N = len(packed) // TOKEN_INTS
    rows, given, temperatures, seeds, tiles = packed.split([ROW_FIELDS * N, N, N, N, 4 * N])  # type: ignore[no-untyped-call]
    return Inputs(
        rows.view(N, ROW_FIELDS),
        given,
        temperatures.view(torch.float32),
        seeds,
        tiles.view(N, TILE_FIELDS),
    )


def list_sizes(max_tokens: int) -> list[int]:
    """List the numbers of tokens to capture: powers of two, and from 32 on one between each two.

    The last holds max_tokens.
    """
    sizes = [1, 2, 4, 8, 16, 32]
    while sizes[-1] < max_tokens:
        last = sizes[-1]
        is_power = last & (last - 1) == 0
        sizes.append(last * 3 // 2 if is_power else last * 4 // 3)
    return sizes


def pack(rows: Sequence[Row], size: int, out: Ints) -> list[int]:
    """Write a step's input: (TOKEN_INTS * size,) int32, what `view_inputs` takes apart.

    Returns:
        The first token of each row.
    """
    out[:] = 0
    lines = out[: ROW_FIELDS * size].reshape(size, ROW_FIELDS)
    given, temperatures, seeds = (
        out[(ROW_FIELDS + n) * size : (ROW_FIELDS + n + 1) * size] for n in range(3)
    )
    tiles = out[(ROW_FIELDS + 3) * size :].reshape(size, TILE_FIELDS)
    firsts = []
    laid: list[tuple[int, ...]] = []
    cut: list[tuple[int, ...]] = []
    tokens: list[int] = []
    for row in rows:
        first, count = len(tokens), len(row.tokens)
        firsts.append(first)
        tokens += row.tokens
        start = 0 if row.starts else KEEP
        laid.append((row.slot, first, count, row.first_sampled, start, row.limit, row.probe, 0))
        cut += [
            (first, first + at, min(TILE_TOKENS, count - at), row.slot)
            for at in range(0, count, TILE_TOKENS)
        ]
        if row.temperature:
            temperatures.view(np.float32)[first : first + count] = row.temperature
            seeds[first : first + count] = row.seed
    assert len(tokens) <= size, (len(tokens), size)
    lines[: len(laid)] = laid
    given[: len(tokens)] = tokens
    tiles[: len(cut)] = cut
    return firsts
