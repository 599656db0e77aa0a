"""How many pages of K/V fit on a GPU: arithmetic, without a GPU."""

from __future__ import annotations

from dataclasses import dataclass

from engine.checkpoint.model_config import ModelConfig

MAX_KV_SHARE = 0.8  # of the free memory at most; the rest is for graphs, activations and cuBLAS
RESERVED_BYTES = 2 << 30  # bytes that graphs and activations take in any case
# windows decoded at once are mostly folded; a pool for 30 s each would mostly lie idle
CROSS_POOL_SHARE = 0.75


@dataclass(frozen=True, slots=True)
class Memory:
    """Sizes of the pools, and the sequences that can run at once."""

    num_self_pages: int
    num_cross_pages: int
    max_batch: int
    kv_bytes: int


def plan_memory(
    free_bytes: int, model: ModelConfig, itemsize: int, max_batch: int, page_sizes: tuple[int, int]
) -> Memory | None:
    """Share memory out between the pools so that as many sequences as asked for can run.

    Args:
        page_sizes: positions in a page of the self and of the cross pool.

    Returns:
        None if not even one sequence of full length fits.
    """
    self_size, cross_size = page_sizes
    self_pages = -(-model.max_target_positions // self_size)
    cross_pages = -(-model.max_source_positions // cross_size)
    self_bytes = self_pages * self_size * model.self_kv_bytes_per_token(itemsize)
    cross_bytes = cross_pages * cross_size * model.cross_kv_bytes_per_position(itemsize)
    budget = min(int(free_bytes * MAX_KV_SHARE), free_bytes - RESERVED_BYTES)
    each = self_bytes + int(cross_bytes * CROSS_POOL_SHARE)
    fitting = min(max_batch, budget // each) if budget > 0 else 0
    if fitting < 1 or budget < self_bytes + cross_bytes:
        return None
    num_cross = max(cross_pages, int(fitting * cross_pages * CROSS_POOL_SHARE))
    num_self = fitting * self_pages
    kv_bytes = num_self // self_pages * self_bytes + num_cross * cross_bytes // cross_pages
    return Memory(num_self, num_cross, fitting, kv_bytes)
