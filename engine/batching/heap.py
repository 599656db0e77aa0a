"""Return freed memory to the system: what torch's temporary tensors left in the heap."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable


@functools.cache
def _find_trim() -> Callable[[int], int] | None:
    trim: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim


def release_heap() -> None:
    """Return freed memory to the system, where its C library can (glibc); 30 to 70 ms.

    Windows of all lengths leave holes in the heap that are never wide enough for the next: after a
    few minutes of base, 400 of 860 MB.
    """
    trim = _find_trim()
    if trim is not None:
        trim(0)
