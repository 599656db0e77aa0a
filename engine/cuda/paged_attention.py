"""Attention on a GPU: paged pools in device memory, read by kernels that need no plan.

Everything a kernel must know (which pages, how long, where in the step) lies in device tensors of
fixed size, so a captured graph serves any sequences, and a plan is a copy of a few kilobytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine.checkpoint.model_config import ModelConfig
from engine.cuda.batch import TILE_FIELDS, TILE_TOKENS
from engine.cuda.kernels.attention import (
    cross_attention_kernel,
    merge_kernel,
    self_attention_kernel,
    store_cross_kernel,
)
from engine.cuda.kernels.encoder import (
    BLOCK_FIELDS,
    LOG2_E,
    NARROW_QUERIES,
    WIDE_QUERIES,
    Queries,
    attend_windows,
)
from engine.model.attention import DecoderRow
from engine.model.folded_tail import KeptPositions

Ints = npt.NDArray[np.int32]

SELF_BLOCK = 64  # keys read at once; more would only slow down a short text
CROSS_BLOCK = 64
# Keys that one program attends to where they are shared out, and after which sums are joined in
# any case: few enough that a single 30 s window keeps all processors busy
CROSS_CHUNK = 512
# Programs from which on each attends to a whole window: there are enough of them then
MIN_UNSPLIT_PROGRAMS = 300
WINDOW_FIELDS = 3  # of a slot: positions, those at full resolution, log2 of the folded ones' weight


class Pools:
    """K/V pages of one model on a GPU, and the tables of what each slot holds."""

    def __init__(
        self,
        config: ModelConfig,
        *,
        num_self_pages: int,
        self_page_size: int,
        num_cross_pages: int,
        cross_page_size: int,
        num_slots: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        """Allocate; a slot is a sequence's line in the tables."""
        H, D, L = config.num_heads, config.head_dim, config.decoder_layers
        self.config = config
        self.num_slots = num_slots
        self.self_page_size = self_page_size
        self.cross_page_size = cross_page_size
        self.device = device
        # zeros: what was never written must be finite
        self.self_kv = torch.zeros(
            L, num_self_pages, 2, H, self_page_size, D, dtype=dtype, device=device
        )
        self.cross_kv = torch.zeros(
            L, num_cross_pages, 2, H, cross_page_size, D, dtype=dtype, device=device
        )
        self._self_width = -(-config.max_target_positions // self_page_size)
        self._cross_width = -(-config.max_source_positions // cross_page_size)
        widths = [self._self_width, self._cross_width, WINDOW_FIELDS]
        # a slot's pages and window, in one tensor so that one copy brings them
        self.tables = torch.zeros(num_slots, sum(widths), dtype=torch.int32, device=device)
        self.self_table, self.cross_table, self.windows = self.tables.split(widths, dim=1)  # type: ignore[no-untyped-call]

    def write_line(
        self,
        line: Ints,
        self_pages: Sequence[int],
        cross_pages: Sequence[int],
        kept: KeptPositions,
    ) -> None:
        """Describe a sequence in a line of (a host copy of) the tables."""
        line[: len(self_pages)] = self_pages
        line[self._self_width : self._self_width + len(cross_pages)] = cross_pages
        # the weight's logarithm goes as the bits of a float
        weight = int(np.float32(math.log2(kept.weight)).view(np.int32))
        line[-WINDOW_FIELDS:] = kept.num_positions, kept.num_full, weight


class PagedAttention:
    """Attention over pools: one step at a time, or one lane of a step.

    `plan_decoder` gives row n slot n. A runner that keeps sequences in their slots writes the
    pools' tables, the tiles and the positions itself, where the graph's kernels find them.
    """

    def __init__(
        self,
        pools: Pools,
        *,
        max_tokens: int,
        tiles: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> None:
        """Attend over pools, which may be shared.

        Args:
            max_tokens: of a step.
            tiles: (max_tokens, TILE_FIELDS) int32, where others write them.
            positions: (max_tokens,) int64, where others write them.
        """
        config, device = pools.config, pools.device
        H, D = config.num_heads, config.head_dim
        self._pools = pools
        if tiles is None:
            tiles = torch.zeros(max_tokens, TILE_FIELDS, dtype=torch.int32, device=device)
        if positions is None:
            positions = torch.zeros(max_tokens, dtype=torch.int64, device=device)
        self._tiles = tiles
        self._positions = positions
        self._num_tiles = max_tokens
        num_chunks = -(-config.max_source_positions // CROSS_CHUNK)
        self._num_chunks = num_chunks
        splits = min(max_tokens, MIN_UNSPLIT_PROGRAMS // H + 1)  # more tokens are not shared out
        self._partial_sums = torch.empty(
            num_chunks, splits, H, D, dtype=torch.float32, device=device
        )
        self._partial_stats = torch.empty(
            num_chunks, splits, H, 2, dtype=torch.float32, device=device
        )
        # of the encoder's windows
        self._blocks = torch.zeros(0, BLOCK_FIELDS, dtype=torch.int32, device=device)
        self._queries = NARROW_QUERIES
        self._num_positions: list[int] = []
        self._log_weight = 0.0

    def plan_encoder(self, kept_positions: Sequence[KeptPositions]) -> None:
        self._num_positions = [kept.num_positions for kept in kept_positions]
        is_folded = any(kept.num_full < kept.num_positions for kept in kept_positions)
        queries = NARROW_QUERIES if is_folded else WIDE_QUERIES
        blocks = torch.from_numpy(lay_blocks(kept_positions, queries)).to(self._pools.device)
        self.use_blocks(blocks, queries, log2_weight(kept_positions))

    def use_blocks(self, blocks: Tensor, queries: Queries, log_weight: float) -> None:
        """Use query blocks from `lay_blocks`, unused ones with length 0."""
        self._blocks = blocks
        self._queries = queries
        self._log_weight = log_weight

    def run_encoder(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attend_windows(q, k, v, self._blocks, self._log_weight, self._queries)

    def store_cross(self, pages: Sequence[tuple[int, ...]], kv: Tensor) -> None:
        slots = find_slots(pages, self._num_positions, self._pools.cross_page_size)
        self.scatter_cross(torch.from_numpy(slots).to(self._pools.device), kv)

    def scatter_cross(self, slots: Tensor, kv: Tensor) -> None:
        """Write positions to places in the pool, (N,) int64: page * page size + place in it.

        Where it is negative, the position is left out.
        """
        pool = self._pools.cross_kv
        L, _, _, H, P, D = pool.shape
        store_cross_kernel[(len(slots), L * 2)](
            kv,
            slots,
            pool,
            pool.stride(0),
            L=L,
            H=H,
            D=D,
            PAGE=P,
            BLOCK=1 << (H * D - 1).bit_length(),
            num_warps=1,
        )

    def plan_decoder(self, rows: Sequence[DecoderRow]) -> None:
        pools = self._pools
        assert len(rows) <= pools.num_slots, (len(rows), pools.num_slots)
        tables = np.zeros((len(rows), pools.tables.shape[1]), dtype=np.int32)
        for line, row in zip(tables, rows, strict=True):
            assert row.num_cached + row.num_queries <= len(row.self_pages) * pools.self_page_size
            pools.write_line(line, row.self_pages, row.cross_pages, row.kept)
        tiles = lay_tiles([row.num_queries for row in rows])
        positions = np.concatenate(
            [np.arange(row.num_cached, row.num_cached + row.num_queries) for row in rows]
        )
        pools.tables[: len(rows)] = torch.from_numpy(tables).to(pools.device)
        self._tiles[: len(tiles)] = torch.from_numpy(tiles).to(pools.device)
        self._positions[: len(positions)] = torch.from_numpy(positions).to(pools.device)
        self._num_tiles = len(tiles)

    def run_self(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        pools = self._pools
        N, H, D = q.shape
        assert q.stride(0) == k.stride(0) == v.stride(0)
        out = torch.empty(N, H, D, dtype=q.dtype, device=q.device)
        self_attention_kernel[(H, self._num_tiles)](
            q,
            k,
            v,
            out,
            pools.self_kv[layer],
            self._tiles,
            self._positions,
            pools.self_table,
            q.stride(0),
            out.stride(0),
            pools.self_table.stride(0),
            D**-0.5 * LOG2_E,
            H=H,
            D=D,
            PAGE=pools.self_page_size,
            BLOCK=SELF_BLOCK,
            TILE_TOKENS=TILE_TOKENS,
            num_warps=2,
            num_stages=3,
        )
        return out

    def run_cross(self, layer: int, q: Tensor) -> Tensor:
        pools = self._pools
        N, H, D = q.shape
        out = torch.empty(N, H, D, dtype=q.dtype, device=q.device)
        num_partials = self._partial_sums.shape[1]
        splits = self._num_tiles * H < MIN_UNSPLIT_PROGRAMS and num_partials >= N
        cross_attention_kernel[(H, self._num_chunks if splits else 1, self._num_tiles)](
            q,
            self._partial_sums,
            self._partial_stats,
            out,
            pools.cross_kv[layer],
            self._tiles,
            pools.cross_table,
            pools.windows,
            num_partials,
            q.stride(0),
            out.stride(0),
            pools.tables.stride(0),
            D**-0.5 * LOG2_E,
            H=H,
            D=D,
            PAGE=pools.cross_page_size,
            BLOCK=CROSS_BLOCK,
            CHUNK=CROSS_CHUNK,
            TILE_TOKENS=TILE_TOKENS,
            SPLITS=splits,
            num_warps=4,
            num_stages=4,
        )
        if splits:
            merge_kernel[(H, self._num_tiles)](
                self._partial_sums,
                self._partial_stats,
                out,
                self._tiles,
                pools.windows,
                num_partials,
                out.stride(0),
                pools.tables.stride(0),
                H=H,
                D=D,
                CHUNK=CROSS_CHUNK,
                TILE_TOKENS=TILE_TOKENS,
                num_warps=2,
            )
        return out

    def read_cross_keys(
        self, layer: int, heads: Sequence[int], pages: tuple[int, ...], num_positions: int
    ) -> Tensor:
        held = torch.tensor(pages, device=self._pools.device)
        chosen = torch.tensor(heads, device=self._pools.device)
        keys = self._pools.cross_kv[layer, held, 0][:, chosen]  # (pages, heads, P, D)
        return keys.transpose(0, 1).flatten(1, 2)[:, :num_positions]


def log2_weight(kept_positions: Sequence[KeptPositions]) -> float:
    """Return the binary logarithm of what a folded position counts: one for all windows."""
    weights = {kept.weight for kept in kept_positions if kept.num_folded}
    assert len(weights) <= 1, weights
    return math.log2(weights.pop()) if weights else 0.0


def lay_blocks(kept_positions: Sequence[KeptPositions], queries: Queries) -> Ints:
    """Cut packed windows into query blocks: (blocks, BLOCK_FIELDS)."""
    blocks = []
    begin = 0
    for kept in kept_positions:
        length = kept.num_positions
        blocks += [
            (begin + at, begin, length, kept.num_full) for at in range(0, length, queries.block)
        ]
        begin += length
    return np.array(blocks, dtype=np.int32).reshape(-1, BLOCK_FIELDS)


def lay_tiles(counts: Sequence[int]) -> Ints:
    """Cut the rows of a step, row n in slot n, into tiles: (tiles, TILE_FIELDS)."""
    tiles = []
    first = 0
    for slot, count in enumerate(counts):
        tiles += [
            (first, first + at, min(TILE_TOKENS, count - at), slot)
            for at in range(0, count, TILE_TOKENS)
        ]
        first += count
    return np.array(tiles, dtype=np.int32).reshape(-1, TILE_FIELDS)


def find_slots(
    pages: Sequence[tuple[int, ...]], lengths: Sequence[int], page_size: int
) -> npt.NDArray[np.int64]:
    """Return the places in the pool of packed windows, in order: (N,)."""
    parts = []
    for held, length in zip(pages, lengths, strict=True):
        starts = np.asarray(held, dtype=np.int64)[:, None] * page_size
        parts.append((starts + np.arange(page_size)).reshape(-1)[:length])
    return np.concatenate(parts)
