"""What a failure costs: the window that met it, and no other.

What fails for many windows at once is tried again in halves, down to a single one. A lack of memory
costs no window at all, as long as memory is enough for one; less runs at once for a while.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Sequence as Rows
from dataclasses import dataclass
from typing import Protocol

import torch

from engine.batching.counters import Counters
from engine.batching.scheduler import Encode, Scheduler, Step
from engine.batching.sequence import Phase, Sequence

logger = logging.getLogger(__name__)

GROW_INTERVAL_S = 60.0  # between two steps back to what ran at once before memory was short
# Steps that failed with a window among others until it is given up, too. Of 256 windows, 8 halvings
# find the one that is at fault; only a failure that moves on costs more.
MAX_FAILED_STEPS = 32


class DecoderRunner(Protocol):
    """What this needs of a runner."""

    def step(self, sequences: Rows[Sequence]) -> None: ...

    def forget(self, sequence: Sequence) -> None: ...


@dataclass(frozen=True, slots=True)
class Casualty:
    """A window that cannot go on, and what its caller is told."""

    sequence: Sequence
    message: str


class Recovery:
    """Runs what may fail. Called by the engine's thread."""

    def __init__(self, scheduler: Scheduler, runner: DecoderRunner, counters: Counters) -> None:
        self._scheduler = scheduler
        self._runner = runner
        self._counters = counters
        self._grow_at = 0.0  # time.monotonic(), while less than usual runs at once

    def step(self, sequences: Rows[Sequence]) -> list[Casualty]:
        """Run the decoder once over sequences; in parts, where memory was short before."""
        size = self._scheduler.max_batch
        parts = deque(sequences[i : i + size] for i in range(0, len(sequences), size))
        casualties: list[Casualty] = []
        while parts:
            part = parts.popleft()
            try:
                self._runner.step(part)
            except Exception as error:
                message = self.note(error, Step(tuple(part)))
                if len(part) == 1:
                    casualties.append(Casualty(part[0], message))
                    continue
                survivors = []
                for sequence in part:
                    # how far each of them came is not known
                    self._runner.forget(sequence)
                    sequence.begin_again()
                    sequence.num_failed_steps += 1
                    if sequence.num_failed_steps > MAX_FAILED_STEPS:
                        casualties.append(Casualty(sequence, message))
                    else:
                        survivors.append(sequence)
                half = len(part) // 2
                parts.extendleft(p for p in (survivors[half:], survivors[:half]) if p)
        return casualties

    def halve(self, work: Encode) -> list[Encode]:
        """Return what to encode again of windows whose encode failed; nothing of a single one."""
        alive = [s for s in work.sequences if s.phase is Phase.ENCODING]
        if len(work.sequences) == 1:
            return []
        half = len(work.sequences) // 2
        return [Encode(tuple(part)) for part in (alive[:half], alive[half:]) if part]

    def note(self, error: Exception, work: Encode | Step | None = None) -> str:
        """Log and count a failure, and return what to tell the caller of a single window.

        Args:
            work: what failed, where less of it at once may help.

        Raises:
            torch.AcceleratorError: the device is of no use to this process any more.
        """
        self._counters.num_failures += 1
        if isinstance(error, torch.AcceleratorError):
            raise error
        if isinstance(error, torch.OutOfMemoryError):
            if work is not None:
                logger.warning("out of memory with %d windows at once", len(work.sequences))
                self._scheduler.reduce_batch(work)
                self._grow_at = time.monotonic() + GROW_INTERVAL_S
            return "the engine was out of memory"
        logger.error("a step failed", exc_info=error)
        return "the engine failed"

    def grow(self) -> None:
        """Run more at once again, when memory has not been short for a while."""
        if self._scheduler.is_reduced:
            now = time.monotonic()
            while self._grow_at <= now and self._scheduler.is_reduced:
                self._scheduler.grow_batch()
                self._grow_at += GROW_INTERVAL_S
