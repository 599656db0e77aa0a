"""Attention of a decoder step over paged K/V: a new token or a draft's many, by the same kernel.

The tokens of a step are cut into tiles of up to 16 successive tokens of one sequence, which read
its keys and values once. Keys come in blocks at fixed positions, the same for every query, so a
token's result is bitwise equal alone and in a draft.

Pools are (pages, 2, H, page size, D): a head's positions in a page lie together.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def self_attention_kernel(
    q,
    k,
    v,
    out,
    pool,
    tiles,
    positions,
    table,
    stride_q,
    stride_out,
    table_stride,
    scale,
    H: tl.constexpr,
    D: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCK: tl.constexpr,
    TILE_TOKENS: tl.constexpr,
):
    tile = tl.program_id(1)
    h = tl.program_id(0)
    count = tl.load(tiles + tile * 4 + 2)
    if count > 0:
        row_first = tl.load(tiles + tile * 4)
        first = tl.load(tiles + tile * 4 + 1)
        slot = tl.load(tiles + tile * 4 + 3)
        # keys from here on are of this step, and come from k and v; the others from the pool
        base = tl.load(positions + row_first)
        i = tl.arange(0, TILE_TOKENS)
        d = tl.arange(0, D)
        is_token = i < count
        at = (first + i).to(tl.int64)[:, None] * stride_q + h * D + d[None, :]
        queries = tl.load(q + at, mask=is_token[:, None], other=0.0)
        position = base + first - row_first + i
        last = base + first - row_first + count - 1

        own = tl.load(table + slot * table_stride + position // PAGE, mask=is_token, other=0)
        home = (own.to(tl.int64) * 2 * H + h) * (PAGE * D) + (position % PAGE) * D
        home = home[:, None] + d[None, :]
        new_k = tl.load(k + at, mask=is_token[:, None], other=0.0)
        new_v = tl.load(v + at, mask=is_token[:, None], other=0.0)
        tl.store(pool + home, new_k, mask=is_token[:, None])
        tl.store(pool + home + H * PAGE * D, new_v, mask=is_token[:, None])

        highest = tl.full((TILE_TOKENS,), float("-inf"), dtype=tl.float32)
        mass = tl.zeros((TILE_TOKENS,), dtype=tl.float32)
        sums = tl.zeros((TILE_TOKENS, D), dtype=tl.float32)
        for start in range(0, last + 1, BLOCK):
            p = start + tl.arange(0, BLOCK)
            is_key = p <= last
            pages = tl.load(table + slot * table_stride + p // PAGE, mask=is_key, other=0)
            stored = (pages.to(tl.int64) * 2 * H + h) * (PAGE * D) + (p % PAGE) * D
            fresh = (row_first + p - base).to(tl.int64) * stride_q + h * D
            is_stored = p < base
            k_at = tl.where(is_stored, pool + stored, k + fresh)
            v_at = tl.where(is_stored, pool + stored + H * PAGE * D, v + fresh)
            keys = tl.load(k_at[:, None] + d[None, :], mask=is_key[:, None], other=0.0)
            values = tl.load(v_at[:, None] + d[None, :], mask=is_key[:, None], other=0.0)
            logits = tl.dot(queries, tl.trans(keys)) * scale
            logits = tl.where(p[None, :] <= position[:, None], logits, float("-inf"))
            # finite from the first block on: every token attends to position 0
            higher = tl.maximum(highest, tl.max(logits, axis=1))
            weights = tl.exp2(logits - higher[:, None])
            shrink = tl.exp2(highest - higher)
            mass = mass * shrink + tl.sum(weights, axis=1)
            sums = tl.dot(weights.to(values.dtype), values, sums * shrink[:, None])
            highest = higher
        where = (first + i).to(tl.int64)[:, None] * stride_out + h * D + d[None, :]
        result = sums / mass[:, None]
        tl.store(out + where, result.to(out.dtype.element_ty), mask=is_token[:, None])


@triton.jit
def join(highest, mass, sums, peak, part, partial):
    """Put what was attended to so far and a further chunk together."""
    higher = tl.maximum(highest, peak)
    old, new = tl.exp2(highest - higher), tl.exp2(peak - higher)
    mass = mass * old + part * new
    sums = sums * old[:, None] + partial * new[:, None]
    return higher, mass, sums


@triton.jit
def cross_attention_kernel(
    q,
    partial_sums,
    partial_stats,
    out,
    pool,
    tiles,
    table,
    windows,
    num_tokens,
    stride_q,
    stride_out,
    table_stride,
    scale,
    H: tl.constexpr,
    D: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCK: tl.constexpr,
    CHUNK: tl.constexpr,
    TILE_TOKENS: tl.constexpr,
    SPLITS: tl.constexpr,
):
    """Attend to one chunk and leave it to merge_kernel (SPLITS), or to all of them, joined here.

    Either way the same numbers are added in the same order.
    """
    h = tl.program_id(0)
    tile = tl.program_id(2)
    count = tl.load(tiles + tile * 4 + 2)
    slot = tl.load(tiles + tile * 4 + 3)
    length = tl.load(windows + slot * table_stride)
    start_chunk = tl.program_id(1)
    if (count > 0) & (start_chunk * CHUNK < length):
        first = tl.load(tiles + tile * 4 + 1)
        num_full = tl.load(windows + slot * table_stride + 1)
        # the binary logarithm of what a folded position counts, as float bits
        log_weight = tl.load(windows + slot * table_stride + 2).to(tl.float32, bitcast=True)
        i = tl.arange(0, TILE_TOKENS)
        d = tl.arange(0, D)
        is_token = i < count
        token = (first + i).to(tl.int64)
        queries = tl.load(
            q + token[:, None] * stride_q + h * D + d[None, :], mask=is_token[:, None], other=0.0
        )
        all_highest = tl.full((TILE_TOKENS,), float("-inf"), dtype=tl.float32)
        all_mass = tl.zeros((TILE_TOKENS,), dtype=tl.float32)
        all_sums = tl.zeros((TILE_TOKENS, D), dtype=tl.float32)
        end_chunk = start_chunk + 1 if SPLITS else (length + CHUNK - 1) // CHUNK
        for chunk in range(start_chunk, end_chunk):
            begin = chunk * CHUNK
            end = tl.minimum(begin + CHUNK, length)
            highest = tl.full((TILE_TOKENS,), float("-inf"), dtype=tl.float32)
            mass = tl.zeros((TILE_TOKENS,), dtype=tl.float32)
            sums = tl.zeros((TILE_TOKENS, D), dtype=tl.float32)
            for start in range(begin, end, BLOCK):
                p = start + tl.arange(0, BLOCK)
                is_key = p < end
                pages = tl.load(table + slot * table_stride + p // PAGE, mask=is_key, other=0)
                at = (pages.to(tl.int64) * 2 * H + h) * (PAGE * D) + (p % PAGE) * D
                at = at[:, None] + d[None, :]
                keys = tl.load(pool + at, mask=is_key[:, None], other=0.0)
                values = tl.load(pool + at + H * PAGE * D, mask=is_key[:, None], other=0.0)
                logits = tl.dot(queries, tl.trans(keys)) * scale
                extra = tl.where(p >= num_full, log_weight, 0.0)
                extra = tl.where(is_key, extra, float("-inf"))
                logits += extra[None, :]
                higher = tl.maximum(highest, tl.max(logits, axis=1))
                weights = tl.exp2(logits - higher[:, None])
                shrink = tl.exp2(highest - higher)
                mass = mass * shrink + tl.sum(weights, axis=1)
                sums = tl.dot(weights.to(values.dtype), values, sums * shrink[:, None])
                highest = higher
            if SPLITS:
                # (chunks, tokens, H, D) and (chunks, tokens, H, 2)
                row = (chunk * num_tokens + token) * H + h
                tl.store(partial_sums + row[:, None] * D + d[None, :], sums, mask=is_token[:, None])
                tl.store(partial_stats + row * 2, highest, mask=is_token)
                tl.store(partial_stats + row * 2 + 1, mass, mask=is_token)
            else:
                all_highest, all_mass, all_sums = join(
                    all_highest, all_mass, all_sums, highest, mass, sums
                )
        if not SPLITS:
            where = token[:, None] * stride_out + h * D + d[None, :]
            result = all_sums / all_mass[:, None]
            tl.store(out + where, result.to(out.dtype.element_ty), mask=is_token[:, None])


@triton.jit
def merge_kernel(
    partial_sums,
    partial_stats,
    out,
    tiles,
    windows,
    num_tokens,
    stride_out,
    table_stride,
    H: tl.constexpr,
    D: tl.constexpr,
    CHUNK: tl.constexpr,
    TILE_TOKENS: tl.constexpr,
):
    """Join the chunks that cross_attention_kernel has left."""
    h = tl.program_id(0)
    tile = tl.program_id(1)
    count = tl.load(tiles + tile * 4 + 2)
    if count > 0:
        first = tl.load(tiles + tile * 4 + 1)
        slot = tl.load(tiles + tile * 4 + 3)
        length = tl.load(windows + slot * table_stride)
        i = tl.arange(0, TILE_TOKENS)
        d = tl.arange(0, D)
        is_token = i < count
        token = (first + i).to(tl.int64)
        highest = tl.full((TILE_TOKENS,), float("-inf"), dtype=tl.float32)
        mass = tl.zeros((TILE_TOKENS,), dtype=tl.float32)
        sums = tl.zeros((TILE_TOKENS, D), dtype=tl.float32)
        for chunk in range((length + CHUNK - 1) // CHUNK):
            row = (chunk * num_tokens + token) * H + h
            peak = tl.load(partial_stats + row * 2, mask=is_token, other=0.0)
            part = tl.load(partial_stats + row * 2 + 1, mask=is_token, other=1.0)
            partial = tl.load(
                partial_sums + row[:, None] * D + d[None, :], mask=is_token[:, None], other=0.0
            )
            highest, mass, sums = join(highest, mass, sums, peak, part, partial)
        where = token[:, None] * stride_out + h * D + d[None, :]
        result = sums / mass[:, None]
        tl.store(out + where, result.to(out.dtype.element_ty), mask=is_token[:, None])


@triton.jit
def store_cross_kernel(
    kv,
    slots,
    pool,
    layer_stride,
    L: tl.constexpr,
    H: tl.constexpr,
    D: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write one position's keys or values of one layer: (N, L, 2, H, D) into (L, pages, ...)."""
    token = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    slot = tl.load(slots + token)
    if slot >= 0:
        c = tl.arange(0, BLOCK)
        inside = c < H * D
        values = tl.load(kv + (token * (L * 2) + part) * (H * D) + c, mask=inside, other=0.0)
        page = (slot // PAGE) * 2 + part % 2
        # wide, for a pool may have more elements than 32 bits can count
        at = (part // 2).to(tl.int64) * layer_stride + page * (H * PAGE * D)
        at += (c // D) * (PAGE * D) + (slot % PAGE) * D + c % D
        tl.store(pool + at, values, mask=inside)
