"""Which windows are encoded next, and which decode: plain Python, without tensors or a clock.

Finals go before partials, then the earliest deadline goes first, then the oldest. Windows without a
deadline, of recordings without a listener, go after all of these. A sequence gets all its pages
when it is admitted and returns them when it is done, so a running sequence is never evicted. A
window that does not fit is not preempted by smaller ones.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass

from engine.api import EngineBusy
from engine.batching.page_pool import PagePool
from engine.batching.sequence import Phase, Sequence

MAX_ENCODE_SHARE = 0.5  # of the time, at most, while others decode
MAX_ENCODE_DEBT_S = 0.5  # a single long encode is forgiven beyond this

_Order = tuple[bool, bool, float, int]


@dataclass(frozen=True, slots=True)
class Encode:
    """Encode these windows; their pages are allocated."""

    sequences: tuple[Sequence, ...]

    @property
    def is_background(self) -> bool:
        """None of them is awaited."""
        return not any(map(_is_awaited, self.sequences))


@dataclass(frozen=True, slots=True)
class Step:
    """Run the decoder once over these sequences."""

    sequences: tuple[Sequence, ...]

    @property
    def is_urgent(self) -> bool:
        """A final that is awaited is among them."""
        return any(map(_is_urgent, self.sequences))


@dataclass(frozen=True, slots=True)
class Admission:
    """Which windows may be encoded now; the others wait and gather."""

    partials: bool = True
    finals: bool = True  # that are awaited
    background: bool = True  # of recordings: not awaited

    def admits(self, sequence: Sequence) -> bool:
        if not _is_awaited(sequence):
            return self.background
        return self.finals if sequence.is_final else self.partials


ADMIT_ALL = Admission()
ADMIT_NONE = Admission(partials=False, finals=False, background=False)


class Scheduler:
    """The waiting and the running sequences, and the pages they hold."""

    def __init__(
        self,
        self_pool: PagePool,
        cross_pool: PagePool,
        *,
        max_batch: int,
        max_encode_batch: int,
        max_encode_positions: int,
        max_waiting: int,
        max_background_batch: int | None = None,
    ) -> None:
        """Schedule for one model.

        Args:
            self_pool: pages of self-attention K/V.
            cross_pool: pages of cross-attention K/V.
            max_batch: sequences that run at once.
            max_encode_batch: windows encoded in one call.
            max_encode_positions: encoder positions in one call of more than one window.
            max_waiting: windows that may wait; one more is refused.
            max_background_batch: windows that are not awaited in one encode; None: as others.
        """
        self._self_pool = self_pool
        self._cross_pool = cross_pool
        self._batch_limit = Limit(max_batch)
        self._encode_limit = Limit(max_encode_batch)
        self._max_encode_positions = max_encode_positions
        self._max_waiting = max_waiting
        self._max_background_batch = max_background_batch or max_encode_batch
        self._waiting: list[tuple[_Order, Sequence]] = []  # sorted
        self._running: dict[int, Sequence] = {}  # by id, in the order of admission
        self._num_urgent_running = 0
        self._by_stream: dict[int, Sequence] = {}  # waiting or running; at most one of a stream
        # seconds that encoding has had beyond its share while others were decoding
        self._encode_debt_s = 0.0

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def max_batch(self) -> int:
        """Sequences that may run at once now: fewer for a while after memory was short."""
        return self._batch_limit.now

    @property
    def max_encode_batch(self) -> int:
        """Windows that may be encoded at once now: fewer for a while after memory was short."""
        return self._encode_limit.now

    @property
    def is_reduced(self) -> bool:
        """Either of them is below what was configured."""
        return self._batch_limit.is_reduced or self._encode_limit.is_reduced

    @property
    def num_pages(self) -> int:
        """Pages of K/V in both pools."""
        return self._self_pool.num_pages + self._cross_pool.num_pages

    @property
    def num_free_pages(self) -> int:
        return self._self_pool.num_free + self._cross_pool.num_free

    def add(self, sequence: Sequence) -> Sequence | None:
        """Let a window wait until it is admitted.

        Returns:
            The older window of the same stream that it replaces, aborted, or None.

        Raises:
            EngineBusy: too many windows wait already.
        """
        older = self._by_stream.get(sequence.stream_id)
        if older is None and len(self._waiting) >= self._max_waiting:
            raise EngineBusy(f"{self._max_waiting} windows are waiting already")
        if older is not None:
            self.release(older)
        bisect.insort(self._waiting, (_order(sequence), sequence))
        self._by_stream[sequence.stream_id] = sequence
        return older

    def release(self, sequence: Sequence) -> None:
        """Take a sequence out, finished or not, and free its pages. Doing it twice does nothing.

        An encoder may still write into the pages of a window that it encodes: these are freed when
        it is done.
        """
        if sequence.phase is Phase.DONE:
            return
        if sequence.phase is Phase.WAITING:
            del self._waiting[bisect.bisect_left(self._waiting, (_order(sequence), sequence))]
        else:
            del self._running[sequence.id]
            self._num_urgent_running -= _is_urgent(sequence)
        del self._by_stream[sequence.stream_id]
        is_written = sequence.phase is Phase.ENCODING
        sequence.phase = Phase.DONE
        if not is_written:
            self._free(sequence)

    def next(self, admission: Admission = ADMIT_ALL) -> Encode | Step | None:
        """Choose what to run now; None if there is nothing to do."""
        if self._waiting and self._may_encode():
            batch = self._admit(admission)
            if batch:
                return Encode(batch)
        running = tuple(s for s in self._running.values() if s.phase is Phase.RUNNING)
        return Step(running) if running else None

    def begin_encoding(self, work: Encode) -> None:
        """Let windows be encoded while others decode."""
        for sequence in work.sequences:
            sequence.phase = Phase.ENCODING

    def end_encoding(self, work: Encode) -> None:
        """Let windows that were encoded decode, and free the pages of those released meanwhile."""
        for sequence in work.sequences:
            if sequence.phase is Phase.ENCODING:
                sequence.phase = Phase.RUNNING
            elif sequence.phase is Phase.DONE:
                self._free(sequence)

    def record(self, work: Encode | Step, duration_s: float) -> None:
        """Keep encoding within its share of the time.

        Args:
            duration_s: how long this work kept the loop from any other.
        """
        if isinstance(work, Encode):
            if len(self._running) > len(work.sequences):  # others waited for it
                self._encode_debt_s += duration_s * (1 - MAX_ENCODE_SHARE)
                self._encode_debt_s = min(self._encode_debt_s, MAX_ENCODE_DEBT_S)
        else:
            self._encode_debt_s = max(0.0, self._encode_debt_s - duration_s * MAX_ENCODE_SHARE)

    def reduce_batch(self, work: Encode | Step) -> None:
        """Run no more than half as much at once as in this work, for which memory was too short."""
        limit = self._encode_limit if isinstance(work, Encode) else self._batch_limit
        limit.reduce(len(work.sequences) // 2)

    def grow_batch(self) -> None:
        """Run a little more at once again, up to what was configured."""
        self._encode_limit.grow()
        self._batch_limit.grow()

    def _may_encode(self) -> bool:
        if not self._running or self._encode_debt_s <= 0:
            return True
        # a final does not wait for the decoding of partials; an urgent one is the first in order
        return _is_urgent(self._waiting[0][1]) and not self._num_urgent_running

    def _admit(self, admission: Admission) -> tuple[Sequence, ...]:
        batch: list[Sequence] = []
        num_positions = 0
        for _, sequence in self._waiting:
            kept = sequence.kept
            max_batch = self._encode_limit.now
            if not _is_awaited(sequence):
                max_batch = min(max_batch, self._max_background_batch)
            is_full = num_positions + kept.num_positions > self._max_encode_positions
            if not admission.admits(sequence) or len(batch) >= max_batch or (batch and is_full):
                break
            # the first that does not fit is not preempted, or a long window might wait for ever
            if len(self._running) >= self._batch_limit.now or not self._allocate(sequence):
                break
            num_positions += kept.num_positions
            self._running[sequence.id] = sequence
            self._num_urgent_running += _is_urgent(sequence)
            sequence.phase = Phase.RUNNING
            batch.append(sequence)
        del self._waiting[: len(batch)]
        return tuple(batch)

    def _allocate(self, sequence: Sequence) -> bool:
        self_pages = self._self_pool.allocate(sequence.num_positions)
        if self_pages is None:
            return False
        cross_pages = self._cross_pool.allocate(sequence.kept.num_positions)
        if cross_pages is None:
            self._self_pool.free(self_pages)
            return False
        sequence.self_pages, sequence.cross_pages = self_pages, cross_pages
        return True

    def _free(self, sequence: Sequence) -> None:
        self._self_pool.free(sequence.self_pages)
        self._cross_pool.free(sequence.cross_pages)
        sequence.self_pages = sequence.cross_pages = ()


class Limit:
    """How much may run at once: halved where memory is short, and back in steps."""

    NUM_STEPS = 8  # from nothing to all

    def __init__(self, most: int) -> None:
        self._most = most
        self.now = most

    @property
    def is_reduced(self) -> bool:
        return self.now < self._most

    def reduce(self, to: int) -> None:
        self.now = max(1, min(self.now, to))

    def grow(self) -> None:
        self.now = min(self._most, self.now + max(1, self._most // self.NUM_STEPS))


def _order(sequence: Sequence) -> _Order:
    """Return what sequences are sorted by; different for each, and fixed for its life."""
    return (not _is_awaited(sequence), not sequence.is_final, sequence.deadline, sequence.id)


def _is_awaited(sequence: Sequence) -> bool:
    """Its stream is live: a listener waits for the text."""
    return sequence.deadline < math.inf


def _is_urgent(sequence: Sequence) -> bool:
    return sequence.is_final and _is_awaited(sequence)
