"""The encoder's own kernel: attention over windows of any length.

Tokens of all windows lie packed one after another. Each program attends from a block of queries
of one window to all of that window, so windows neither see nor wait for each other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

KEY_BLOCK = 64  # keys that a program attends to at once
LAST_BLOCK = 32  # and at the end of a window, where keys have masks and weights
LOG2_E = math.log2(math.e)
BLOCK_FIELDS = 4  # of a query block: its first token, the window's first, length, full positions


@dataclass(frozen=True, slots=True)
class Queries:
    """How many queries a program has, and how it runs. A query's bits are the same from each."""

    block: int
    num_warps: int
    num_stages: int
    max_registers: int  # of a thread: so few that programs share a processor and its waits


# For windows of any length: five programs to a processor
NARROW_QUERIES = Queries(block=64, num_warps=4, num_stages=2, max_registers=96)
# For windows that fill their blocks: keys and values are read half as often, which takes power
# that the products can use, where power is what they lack
WIDE_QUERIES = Queries(block=128, num_warps=8, num_stages=3, max_registers=112)


@triton.jit
def window_attention_kernel(
    q,
    kv,
    last_kv,
    out,
    blocks,
    stride_out,
    scale,
    log_weight,
    C: tl.constexpr,
    D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    LAST_N: tl.constexpr,
):
    block = tl.program_id(1)
    h = tl.program_id(0)
    length = tl.load(blocks + block * 4 + 2)
    if length > 0:
        first = tl.load(blocks + block * 4)
        begin = tl.load(blocks + block * 4 + 1)
        num_full = tl.load(blocks + block * 4 + 3)
        m = tl.arange(0, BLOCK_M)
        n = tl.arange(0, LAST_N)
        d = tl.arange(0, D)
        # those after the window belong to another or to none, and are not written
        queries = q.load([first, h * D])
        highest = tl.full((BLOCK_M,), float("-inf"), dtype=tl.float32)
        mass = tl.zeros((BLOCK_M,), dtype=tl.float32)
        sums = tl.zeros((BLOCK_M, D), dtype=tl.float32)
        # whole blocks at full resolution need neither mask nor weight
        plain = num_full // BLOCK_N * BLOCK_N
        for start in range(0, plain, BLOCK_N):
            keys = kv.load([begin + start, C + h * D])
            logits = tl.dot(queries, tl.trans(keys))
            higher = tl.maximum(highest, tl.max(logits, axis=1) * scale)
            weights = tl.exp2(logits * scale - higher[:, None])
            shrink = tl.exp2(highest - higher)
            mass = mass * shrink + tl.sum(weights, axis=1)
            values = kv.load([begin + start, 2 * C + h * D])
            sums = tl.dot(weights.to(values.dtype), values, sums * shrink[:, None])
            highest = higher
        for start in range(plain, length, LAST_N):
            # the last block reaches into the next window, or into rows that hold anything at
            # all, NaN included: it is chosen, not weighted, what counts
            is_key = start + n < length
            keys = last_kv.load([begin + start, C + h * D])
            extra = tl.where(start + n >= num_full, log_weight, 0.0)
            logits = tl.dot(queries, tl.trans(keys)) * scale + extra[None, :]
            logits = tl.where(is_key[None, :], logits, float("-inf"))
            higher = tl.maximum(highest, tl.max(logits, axis=1))
            weights = tl.exp2(logits - higher[:, None])
            shrink = tl.exp2(highest - higher)
            mass = mass * shrink + tl.sum(weights, axis=1)
            values = last_kv.load([begin + start, 2 * C + h * D])
            values = tl.where(is_key[:, None], values, 0.0)
            sums = tl.dot(weights.to(values.dtype), values, sums * shrink[:, None])
            highest = higher
        tokens = (first + m).to(tl.int64)
        is_token = first + m < begin + length
        where = tokens[:, None] * stride_out + h * D + d[None, :]
        result = sums / mass[:, None]
        tl.store(out + where, result.to(out.dtype.element_ty), mask=is_token[:, None])


def attend_windows(
    q: Tensor, k: Tensor, v: Tensor, blocks: Tensor, log_weight: float, queries: Queries
) -> Tensor:
    """Attend within windows: (N, H, D) each, views of one (N, 3, H, D), and (N, H, D) back.

    All comes through the tensor memory accelerator: a fifth faster than by pointers.

    Args:
        blocks: (blocks, BLOCK_FIELDS) int32, of so many queries; unused ones have length 0.
        log_weight: log2 of what a folded position counts.
    """
    N, H, D = q.shape
    C = H * D
    # q, k and v lie side by side, so that all are columns of one matrix
    assert q.stride(0) == 3 * C and k.data_ptr() - q.data_ptr() == C * q.element_size()
    packed = q.as_strided((N, 3 * C), (3 * C, 1))

    def reach(rows: int) -> TensorDescriptor:
        return TensorDescriptor(packed, [N, 3 * C], [3 * C, 1], [rows, D])

    out = torch.empty(N, H, D, dtype=q.dtype, device=q.device)
    window_attention_kernel[(H, len(blocks))](
        reach(queries.block),
        reach(KEY_BLOCK),
        reach(LAST_BLOCK),
        out,
        blocks,
        out.stride(0),
        D**-0.5 * LOG2_E,
        log_weight,
        C=C,
        D=D,
        BLOCK_M=queries.block,
        BLOCK_N=KEY_BLOCK,
        LAST_N=LAST_BLOCK,
        num_warps=queries.num_warps,
        num_stages=queries.num_stages,
        maxnreg=queries.max_registers,
    )
    return out
