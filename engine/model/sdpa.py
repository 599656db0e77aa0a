"""The reference backend: plain PyTorch, on any device.

A sequence whose pages lie in one run is read as a slice of the pool, without a copy; one whose
pages are scattered is gathered first. Rows are attended one after another: on a CPU a row's work
is long compared with a call.

It is batch-invariant: a token's results do not depend on what else is in the batch. Matrix products
of 4 rows or more, and of up to 128 summands, round every row identically. So fewer rows are padded
to 4, and longer sums are added in blocks of 128. A draft that is verified in one step is therefore
bitwise equal to single steps.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from engine.checkpoint.model_config import ModelConfig
from engine.model.attention import DecoderRow
from engine.model.folded_tail import KeptPositions

MIN_ROWS = 4  # fewer go through other kernels, which round otherwise
SUM_BLOCK = 128  # summands that one product adds up in order
VECTOR_LENGTH = 16  # a softmax over whole vectors adds up the same, whatever masked ones follow


@dataclass(frozen=True, slots=True)
class PlannedRow:
    """Where one row's tokens, keys and values lie in this step."""

    tokens: slice  # of the packed tokens
    keys: slice | Tensor  # slots of the self pool, up to this step's last, in whole vectors
    mask: Tensor  # (num_queries or MIN_ROWS, keys): 0, or -inf for what comes later
    cross: slice | Tensor  # slots of the cross pool
    bias: Tensor  # (1, positions) of cross-attention: log of what each counts for


class EncoderPlan(threading.local):
    """The windows of an encode: where their positions lie, and what is added to their logits.

    Each thread has one of its own, since several windows may be encoded at once.
    """

    windows: list[tuple[slice, Tensor | None]]


def make_zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Allocate zeros. On a CPU they take memory only once they are written."""
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    # torch.zeros writes them all; numpy asks the kernel for pages that are zero already
    num_bytes = math.prod(shape) * dtype.itemsize
    return torch.from_numpy(np.zeros(num_bytes, np.uint8)).view(dtype).view(shape)


class SdpaAttention:
    """Paged attention over slots: a slot holds one position's K and V of one layer."""

    def __init__(
        self,
        config: ModelConfig,
        *,
        num_self_pages: int,
        self_page_size: int,
        num_cross_pages: int,
        cross_page_size: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        H, D, L = config.num_heads, config.head_dim, config.decoder_layers
        assert self_page_size % VECTOR_LENGTH == 0, self_page_size
        self._self_page_size = self_page_size
        self._cross_page_size = cross_page_size
        self._device = device
        # zeros, not empty: no NaN can leak into a gather
        self._self_kv = make_zeros((L, num_self_pages * self_page_size, 2, H, D), dtype, device)
        self._cross_kv = make_zeros((L, num_cross_pages * cross_page_size, 2, H, D), dtype, device)
        P = config.max_source_positions
        # zeros up to the diagonal, then -inf; a row more for each that fills up the last one
        T = -(-config.max_target_positions // VECTOR_LENGTH) * VECTOR_LENGTH
        self._causal = torch.full((T + MIN_ROWS, T), -math.inf, dtype=dtype, device=device).triu(1)
        # sliced so that the bias changes from 0 to log r where a window's folded positions begin
        self._bias_lines: dict[int, Tensor] = {}
        self._num_positions = P
        self._dtype = dtype
        self._encoding = EncoderPlan()
        self._rows: list[PlannedRow] = []
        self._new_slots = torch.empty(0, dtype=torch.int64, device=device)

    def plan_encoder(self, kept_positions: Sequence[KeptPositions]) -> None:
        windows = []
        start = 0
        for kept in kept_positions:
            end = start + kept.num_positions
            bias = None
            if kept.num_folded:
                bias = self._bias(kept).expand(1, 1, kept.num_positions, -1)
            windows.append((slice(start, end), bias))
            start = end
        self._encoding.windows = windows

    def run_encoder(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        outputs = [attend_all(q[at], k[at], v[at], bias) for at, bias in self._encoding.windows]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)

    def store_cross(self, pages: Sequence[tuple[int, ...]], kv: Tensor) -> None:
        by_layer = kv.transpose(0, 1)  # (N, L, 2, H, D) -> (L, N, 2, H, D)
        for (at, _), held in zip(self._encoding.windows, pages, strict=True):
            if not held:
                continue
            slots = self._slots(held, self._cross_page_size, at.stop - at.start)
            if isinstance(slots, slice):
                self._cross_kv[:, slots] = by_layer[:, at]
            else:
                self._cross_kv.index_copy_(1, slots, by_layer[:, at])

    def plan_decoder(self, rows: Sequence[DecoderRow]) -> None:
        self._rows = []
        new_slots: list[int] = []
        start = 0
        for row in rows:
            num_keys = row.num_cached + row.num_queries
            size = self._self_page_size
            assert num_keys <= len(row.self_pages) * size, (num_keys, row)
            new_slots += [
                row.self_pages[at // size] * size + at % size
                for at in range(row.num_cached, num_keys)
            ]
            # positions after the last are masked; the page that holds it holds them too, or
            # what another sequence left there, which is finite
            num_read = -(-num_keys // VECTOR_LENGTH) * VECTOR_LENGTH
            last_query = row.num_cached + max(row.num_queries, MIN_ROWS)
            self._rows.append(
                PlannedRow(
                    slice(start, start + row.num_queries),
                    self._slots(row.self_pages, size, num_read),
                    self._causal[row.num_cached : last_query, :num_read],
                    self._slots(row.cross_pages, self._cross_page_size, row.kept.num_positions),
                    self._bias(row.kept),
                )
            )
            start += row.num_queries
        self._new_slots = torch.tensor(new_slots, dtype=torch.int64, device=self._device)

    def run_self(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        pool = self._self_kv[layer]
        pool[:, 0].index_copy_(0, self._new_slots, k)
        pool[:, 1].index_copy_(0, self._new_slots, v)
        outputs = []
        for row in self._rows:
            kv = pool[row.keys]
            outputs.append(attend(q[row.tokens], kv[:, 0], kv[:, 1], row.mask))
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)

    def run_cross(self, layer: int, q: Tensor) -> Tensor:
        pool = self._cross_kv[layer]
        outputs = []
        for row in self._rows:
            kv = pool[row.cross]
            outputs.append(attend(q[row.tokens], kv[:, 0], kv[:, 1], row.bias))
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)

    def read_cross_keys(
        self, layer: int, heads: Sequence[int], pages: tuple[int, ...], num_positions: int
    ) -> Tensor:
        slots = self._slots(pages, self._cross_page_size, num_positions)
        return self._cross_kv[layer][slots, 0][:, list(heads)].transpose(0, 1)

    def _slots(self, pages: tuple[int, ...], size: int, count: int) -> slice | Tensor:
        """Find the slots of the first `count` positions in some pages."""
        if pages[-1] - pages[0] == len(pages) - 1:  # ascending, so one run
            first = pages[0] * size
            return slice(first, first + count)
        starts = torch.tensor(pages, device=self._device) * size
        slots = starts[:, None] + torch.arange(size, device=self._device)
        return slots.flatten()[:count]

    def _bias(self, kept: KeptPositions) -> Tensor:
        """Return what is added to a window's logits: (1, positions)."""
        line = self._bias_lines.get(kept.weight)
        if line is None:  # one for each factor in use, and 1
            line = torch.zeros(2 * self._num_positions, dtype=self._dtype, device=self._device)
            line[self._num_positions :] = math.log(kept.weight)
            self._bias_lines[kept.weight] = line
        first = self._num_positions - kept.num_full
        return line[None, first : first + kept.num_positions]


def attend_all(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """Attend within a window, (S, H, D) each and back; the bias is added to the logits."""
    output = F.scaled_dot_product_attention(
        q.transpose(0, 1)[None], k.transpose(0, 1)[None], v.transpose(0, 1)[None], attn_mask=bias
    )  # (1, H, S, D)
    return output[0].transpose(0, 1)


def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    """Attend from (T, H, D) to (S, H, D), batch-invariantly: each query rounds alike.

    Args:
        bias: (T or MIN_ROWS, S) or (1, S), added to the logits.
    """
    T, _, D = q.shape
    q = q.transpose(0, 1)  # (H, T, D)
    if T < MIN_ROWS:
        q = F.pad(q, (0, 0, 0, MIN_ROWS - T))
    k, v = k.permute(1, 2, 0), v.transpose(0, 1)  # (H, D, S), (H, S, D)
    weights = torch.baddbmm(bias, q, k, alpha=D**-0.5).softmax(dim=-1)  # (H, T, S)
    output = torch.bmm(weights[:, :, :SUM_BLOCK], v[:, :SUM_BLOCK])
    for first in range(SUM_BLOCK, weights.shape[2], SUM_BLOCK):
        block = slice(first, first + SUM_BLOCK)
        output = torch.baddbmm(output, weights[:, :, block], v[:, block])
    return output[:, :T].transpose(0, 1)
