"""How a decoder pass is laid out for a captured graph: buckets, lanes, rows and tiles.

A graph has a fixed number of tokens. Two lanes halve it: each runs all layers for its own
sequences on its own stream, so that one lane's small kernels, which wait for their launches, run
beside the other's reading of keys and values, which waits for memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

TILE = 16  # tokens of one sequence that read its keys together
ROW_FIELDS = 8  # slot, first token, count, first sampled, start, limit, probe
TILE_FIELDS = 4  # the row's first token in its lane, the tile's first, count, slot
KEEP = -1  # as start: go on where the slot stands, else 0; as a token: what the slot says next
TOKEN_INTS = ROW_FIELDS + 3 + TILE_FIELDS  # of a pass's input, for each token of the bucket

Ints = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Bucket:
    """A size that passes are captured for."""

    num_tokens: int
    num_lanes: int = 1

    @property
    def lane_size(self) -> int:
        return self.num_tokens // self.num_lanes


@dataclass(frozen=True, slots=True)
class Row:
    """What one sequence brings to a pass."""

    slot: int
    tokens: Sequence[int]  # to read; KEEP for the one the slot says next
    first_sampled: int  # of those: from here on one is sampled after each; their count for none
    starts: bool  # at position 0, nothing said yet; else it goes on where it stands
    limit: int  # positions that it may fill
    probe: int = -1  # of its tokens: the start of transcript; -1 if it is not among them
    temperature: float = 0.0
    seed: int = 0  # of its noise; what is drawn at a position depends on nothing else


@dataclass(frozen=True, slots=True)
class Inputs:
    """The device's view of a pass's input, which is one tensor so that one copy brings it."""

    rows: Tensor  # (N, ROW_FIELDS) int32; unused ones have count 0
    given: Tensor  # (N,) int32
    temperatures: Tensor  # (N,) float32
    seeds: Tensor  # (N,) int32
    tiles: Tensor  # (N, TILE_FIELDS) int32; each lane has its share


def view_inputs(packed: Tensor) -> Inputs:
    """Take a packed input apart: (TOKEN_INTS * N,) int32."""
    N = len(packed) // TOKEN_INTS
    rows, given, temperatures, seeds, tiles = packed.split([ROW_FIELDS * N, N, N, N, 4 * N])
    return Inputs(
        rows.view(N, ROW_FIELDS),
        given,
        temperatures.view(torch.float32),
        seeds,
        tiles.view(N, TILE_FIELDS),
    )


def make_buckets(max_tokens: int, two_lanes_from: int) -> list[Bucket]:
    """List the sizes to capture, ascending: powers of two, and one between each two from 32 on."""
    sizes = [1, 2, 4, 8, 16]
    size = 32
    while size <= max_tokens:
        sizes += [size, size + size // 2]
        size *= 2
    return [
        Bucket(size, 2 if size >= two_lanes_from else 1) for size in sizes if size <= max_tokens
    ]


def place(counts: Sequence[int], bucket: Bucket) -> list[int] | None:
    """Find the first token of each row, so that none crosses a lane; None if they do not fit."""
    if sum(counts) > bucket.num_tokens:
        return None
    ends = [lane * bucket.lane_size for lane in range(bucket.num_lanes)]
    limits = [end + bucket.lane_size for end in ends]
    firsts = [0] * len(counts)
    # the longest first, each into the emptier lane
    for at in sorted(range(len(counts)), key=lambda n: -counts[n]):
        lane = max(range(bucket.num_lanes), key=lambda n: limits[n] - ends[n])
        if ends[lane] + counts[at] > limits[lane]:
            return None
        firsts[at] = ends[lane]
        ends[lane] += counts[at]
    return firsts


def choose_bucket(
    counts: Sequence[int], buckets: Sequence[Bucket]
) -> tuple[Bucket, list[int]] | None:
    """Choose the smallest bucket that holds all rows, and their places in it."""
    for bucket in buckets:
        firsts = place(counts, bucket)
        if firsts is not None:
            return bucket, firsts
    return None


def pack(rows: Sequence[Row], firsts: Sequence[int], bucket: Bucket, out: Ints) -> None:
    """Write a pass's input: (TOKEN_INTS * N,) int32, what `view_inputs` takes apart."""
    N = bucket.num_tokens
    out[:] = 0
    lines = out[: ROW_FIELDS * N].reshape(N, ROW_FIELDS)
    given, temperatures, seeds = (
        out[(ROW_FIELDS + n) * N : (ROW_FIELDS + n + 1) * N] for n in range(3)
    )
    tiles = out[(ROW_FIELDS + 3) * N :].reshape(N, TILE_FIELDS)
    lines[: len(rows)] = [
        (
            row.slot,
            first,
            len(row.tokens),
            row.first_sampled,
            0 if row.starts else KEEP,
            row.limit,
            row.probe,
            0,
        )
        for row, first in zip(rows, firsts, strict=True)
    ]
    by_lane: list[list[tuple[int, int, int, int]]] = [[] for _ in range(bucket.num_lanes)]
    for row, first in zip(rows, firsts, strict=True):
        count = len(row.tokens)
        given[first : first + count] = row.tokens
        if row.temperature:
            temperatures.view(np.float32)[first : first + count] = row.temperature
            seeds[first : first + count] = row.seed
        lane, start = divmod(first, bucket.lane_size)
        by_lane[lane] += [
            (start, start + at, min(TILE, count - at), row.slot) for at in range(0, count, TILE)
        ]
    for lane, laid in enumerate(by_lane):
        begin = lane * bucket.lane_size
        tiles[begin : begin + len(laid)] = laid
