"""Attention on a GPU: paged pools in device memory, read by kernels that need no plan.

Everything a kernel must know (which pages, how long, where in the pass) lies in device tensors of
fixed size, so a captured graph serves any sequences, and a plan is a copy of a few kilobytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine.attention import DecoderRow
from engine.config import ModelConfig
from engine.cuda.kernels.attention import (
    TILE,
    TILE_FIELDS,
    cross_attention_kernel,
    merge_kernel,
    self_attention_kernel,
    store_cross_kernel,
)
from engine.cuda.kernels.encoder import BLOCK_FIELDS, QUERY_BLOCK, window_attention_kernel
from engine.extent import Extent

Ints = npt.NDArray[np.int32]

SELF_BLOCK = 64  # keys read at once; larger ones only wait longer for a short text
CROSS_BLOCK = 64
# Keys of one program: few enough that a single 30 s window keeps all processors busy
CROSS_CHUNK = 256
ENCODER_BLOCK = 64
LOG2_E = math.log2(math.e)
WINDOW_FIELDS = 3  # of a slot: positions, those at full resolution, log2 of the folded ones' weight


class PagedAttention:
    """K/V pools on a GPU, and attention over them.

    A sequence has a slot, its line in the tables that the kernels read. `plan_decoder` gives
    row n slot n; a runner that keeps sequences in their slots writes the tables itself.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        num_self_pages: int,
        self_page_size: int,
        num_cross_pages: int,
        cross_page_size: int,
        num_slots: int,
        max_tokens: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        """Allocate the pools and the tables.

        Args:
            num_slots: sequences at once.
            max_tokens: of one decoder pass.
        """
        H, D, L = config.num_heads, config.head_dim, config.decoder_layers
        self.config = config
        self.num_slots = num_slots
        self.max_tokens = max_tokens
        self.self_page_size = self_page_size
        self.cross_page_size = cross_page_size
        self._dtype = dtype
        self._device = device
        # zeros: what was never written must be finite
        self._self_kv = torch.zeros(
            L, num_self_pages, 2, H, self_page_size, D, dtype=dtype, device=device
        )
        self._cross_kv = torch.zeros(
            L, num_cross_pages, 2, H, cross_page_size, D, dtype=dtype, device=device
        )
        self.self_width = -(-config.max_target_positions // self_page_size)
        self.cross_width = -(-config.max_source_positions // cross_page_size)

        def ints(*shape: int) -> Tensor:
            return torch.zeros(*shape, dtype=torch.int32, device=device)

        self.self_table = ints(num_slots, self.self_width)
        self.cross_table = ints(num_slots, self.cross_width)
        self.windows = ints(num_slots, WINDOW_FIELDS)
        self.tiles = ints(max_tokens, TILE_FIELDS)
        self.positions = torch.zeros(max_tokens, dtype=torch.int64, device=device)
        self._num_chunks = -(-config.max_source_positions // CROSS_CHUNK)
        self._partial_sums = torch.empty(
            self._num_chunks, max_tokens, H, D, dtype=torch.float32, device=device
        )
        self._partial_stats = torch.empty(
            self._num_chunks, max_tokens, H, 2, dtype=torch.float32, device=device
        )
        self._counters = ints(max_tokens, H)
        self._num_tiles = 0
        # of the encoder's windows; written by plan_encoder
        self._blocks = ints(0, BLOCK_FIELDS)
        self._num_positions: list[int] = []
        self._log_weight = 0.0

    def plan_encoder(self, extents: Sequence[Extent]) -> None:
        self._num_positions = [extent.num_positions for extent in extents]
        self._log_weight = log2_weight(extents)
        self._blocks = torch.from_numpy(lay_blocks(extents)).to(self._device)

    def use_blocks(self, blocks: Tensor, log_weight: float) -> None:
        """Take query blocks from a buffer of the caller's, unused ones with length 0."""
        self._blocks = blocks
        self._log_weight = log_weight

    def run_encoder(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        N, H, D = q.shape
        out = torch.empty(N, H, D, dtype=q.dtype, device=q.device)
        window_attention_kernel[(H, len(self._blocks))](
            q,
            k,
            v,
            out,
            self._blocks,
            q.stride(0),
            out.stride(0),
            D**-0.5 * LOG2_E,
            self._log_weight,
            D=D,
            BLOCK_M=QUERY_BLOCK,
            BLOCK_N=ENCODER_BLOCK,
            num_warps=4,
            num_stages=3,
        )
        return out

    def store_cross(self, pages: Sequence[tuple[int, ...]], kv: Tensor) -> None:
        slots = find_slots(pages, self._num_positions, self.cross_page_size)
        self.scatter_cross(torch.from_numpy(slots).to(self._device), kv)

    def scatter_cross(self, slots: Tensor, kv: Tensor) -> None:
        """Write positions to slots of the pool, (N,) int64: page * page size + place in it.

        A negative slot is left out.
        """
        L, _, _, H, P, D = self._cross_kv.shape
        store_cross_kernel[(len(slots), L * 2)](
            kv,
            slots,
            self._cross_kv,
            self._cross_kv.stride(0),
            L=L,
            H=H,
            D=D,
            PAGE=P,
            BLOCK=next_power_of_2(H * D),
            num_warps=1,
        )

    def plan_decoder(self, rows: Sequence[DecoderRow]) -> None:
        assert len(rows) <= self.num_slots, (len(rows), self.num_slots)
        counts = [row.num_queries for row in rows]
        tiles = lay_tiles(counts, range(len(rows)))
        self._num_tiles = len(tiles)
        positions = np.concatenate(
            [np.arange(row.num_cached, row.num_cached + row.num_queries) for row in rows]
        )
        for at, row in enumerate(rows):
            assert row.num_cached + row.num_queries <= len(row.self_pages) * self.self_page_size
            self.write_slot(at, row.self_pages, row.cross_pages, row.extent)
        self.tiles[: len(tiles)] = torch.from_numpy(tiles).to(self._device)
        self.positions[: len(positions)] = torch.from_numpy(positions).to(self._device)

    def write_slot(
        self, slot: int, self_pages: Sequence[int], cross_pages: Sequence[int], extent: Extent
    ) -> None:
        """Tell the kernels where a slot's sequence lies."""
        lines = (
            (self.self_table, self_pages),
            (self.cross_table, cross_pages),
            (self.windows, window_line(extent)),
        )
        for table, values in lines:
            line = torch.tensor(values, dtype=torch.int32, device=self._device)
            table[slot, : len(line)] = line

    def use_tiles(self, num_tiles: int) -> None:
        """Launch for so many tiles, unused ones with count 0: what a graph is captured with."""
        self._num_tiles = num_tiles

    def run_self(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        N, H, D = q.shape
        assert q.stride(0) == k.stride(0) == v.stride(0)
        out = torch.empty(N, H, D, dtype=q.dtype, device=q.device)
        self_attention_kernel[(H, self._num_tiles)](
            q,
            k,
            v,
            out,
            self._self_kv[layer],
            self.tiles,
            self.positions,
            self.self_table,
            q.stride(0),
            out.stride(0),
            self.self_width,
            D**-0.5 * LOG2_E,
            H=H,
            D=D,
            PAGE=self.self_page_size,
            BLOCK=SELF_BLOCK,
            TILE=TILE,
            num_warps=2,
            num_stages=2,
        )
        return out

    def run_cross(self, layer: int, q: Tensor) -> Tensor:
        N, H, D = q.shape
        out = torch.empty(N, H, D, dtype=q.dtype, device=q.device)
        cross_attention_kernel[(H, self._num_chunks, self._num_tiles)](
            q,
            self._partial_sums,
            self._partial_stats,
            out,
            self._counters,
            self._cross_kv[layer],
            self.tiles,
            self.cross_table,
            self.windows,
            self.max_tokens,
            q.stride(0),
            out.stride(0),
            self.cross_width,
            D**-0.5 * LOG2_E,
            H=H,
            D=D,
            PAGE=self.cross_page_size,
            BLOCK=CROSS_BLOCK,
            CHUNK=CROSS_CHUNK,
            TILE=TILE,
            NUM_CHUNKS=self._num_chunks,
            MERGES=False,
            num_warps=4,
            num_stages=3,
        )
        merge_kernel[(H, self._num_tiles)](
            self._partial_sums,
            self._partial_stats,
            out,
            self.tiles,
            self.windows,
            self.max_tokens,
            out.stride(0),
            H=H,
            D=D,
            CHUNK=CROSS_CHUNK,
            TILE=TILE,
            num_warps=2,
        )
        return out

    def read_cross_keys(
        self, layer: int, heads: Sequence[int], pages: tuple[int, ...], num_positions: int
    ) -> Tensor:
        held = torch.tensor(pages, device=self._device)
        chosen = torch.tensor(heads, device=self._device)
        keys = self._cross_kv[layer, held, 0][:, chosen]  # (pages, heads, P, D)
        return keys.transpose(0, 1).flatten(1, 2)[:, :num_positions]


def window_line(extent: Extent) -> tuple[int, int, int]:
    """Describe a window to the kernels; the weight's logarithm is passed as the bits of a float."""
    weight = np.float32(math.log2(extent.weight))
    return extent.num_positions, extent.num_full, int(weight.view(np.int32))


def log2_weight(extents: Sequence[Extent]) -> float:
    """Give the binary logarithm of what a folded position counts: one for all windows."""
    weights = {extent.weight for extent in extents if extent.num_folded}
    assert len(weights) <= 1, weights
    return math.log2(weights.pop()) if weights else 0.0


def lay_blocks(extents: Sequence[Extent]) -> Ints:
    """Cut packed windows into query blocks: (blocks, BLOCK_FIELDS)."""
    blocks = []
    begin = 0
    for extent in extents:
        length = extent.num_positions
        for at in range(0, length, QUERY_BLOCK):
            blocks.append((begin + at, begin, length, extent.num_full))
        begin += length
    return np.array(blocks, dtype=np.int32).reshape(-1, BLOCK_FIELDS)


def lay_tiles(counts: Sequence[int], slots: Sequence[int]) -> Ints:
    """Cut the rows of a pass into tiles: (tiles, TILE_FIELDS)."""
    tiles = []
    row_first = 0
    for count, slot in zip(counts, slots, strict=True):
        for at in range(0, count, TILE):
            tiles.append((row_first, row_first + at, min(TILE, count - at), slot))
        row_first += count
    return np.array(tiles, dtype=np.int32).reshape(-1, TILE_FIELDS)


def find_slots(
    pages: Sequence[tuple[int, ...]], lengths: Sequence[int], page_size: int
) -> npt.NDArray[np.int64]:
    """Give the pool's slots of packed windows, in order: (N,)."""
    parts = []
    for held, length in zip(pages, lengths, strict=True):
        starts = np.asarray(held, dtype=np.int64)[:, None] * page_size
        parts.append((starts + np.arange(page_size)).reshape(-1)[:length])
    return np.concatenate(parts)


def next_power_of_2(n: int) -> int:
    return 1 << (n - 1).bit_length()
