"""Sequences as the scheduler and the runners of the engine meet them."""

from __future__ import annotations

from typing import Any

from engine.batching.sequence import Phase, Sequence
from engine.model.folded_tail import KeptPositions


def make_sequence(id: int, **fields: Any) -> Sequence:
    """Make a sequence that waits to be encoded, with a stream of its own."""
    defaults: dict[str, Any] = {
        "stream_id": id,
        "is_final": False,
        "deadline": 1e9,
        "kept": KeptPositions(100),
        "prefix": [0, 1, 2],
        "max_tokens": 45,
        "sot_index": 0,
    }
    return Sequence(id=id, **(defaults | fields))


def make_running(id: int, *, num_self_pages: int = 1, **fields: Any) -> Sequence:
    """Make a sequence that is encoded, and holds pages of its own."""
    first = id * num_self_pages
    pages = {
        "self_pages": tuple(range(first, first + num_self_pages)),
        "cross_pages": (id,),
        "phase": Phase.RUNNING,
    }
    return make_sequence(id, deadline=0.0, **(pages | fields))
