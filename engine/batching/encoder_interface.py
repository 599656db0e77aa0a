"""The interface of encoders to the loop, and the encoder that calls the runner.

The other encoder is the pool of threads on a CPU (`encoder_threads.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Rows
from dataclasses import dataclass
from typing import Protocol

from engine.api import Samples
from engine.batching.scheduler import Admission, Encode, Step


@dataclass(frozen=True, slots=True)
class Encoded:
    """Windows that may decode from now on, or that could not be encoded."""

    work: Encode
    duration_s: float
    blocked_s: float = 0.0  # of that, how long the loop could not run the decoder
    error: Exception | None = None


class Encoder(Protocol):
    """Encodes windows for the loop, whose thread alone calls it."""

    @property
    def admission(self) -> Admission:
        """Which windows may be started now."""
        ...

    def start(self, work: Encode, audio: Rows[Samples]) -> None:
        """Start to encode windows that `admission` admits."""
        ...

    def take_done(self) -> list[Encoded]:
        """Return what has finished since the last call; what failed is among it."""
        ...

    def make_way(self, step: Step | None) -> None:
        """Leave the decoder what it needs for a step, which runs next; None: it is idle."""
        ...

    def open(self, on_news: Callable[[], None]) -> None:
        """Begin to encode; on_news is called when work is done or more is admitted."""
        ...

    def close(self) -> None:
        """End, and give up what is not encoded yet: `take_done` returns it a last time."""
        ...
