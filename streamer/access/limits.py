"""Limits that hold over time: rates, failed attempts, and how many sessions the machine carries.

No I/O and no clock: `now` is an argument, in seconds of a clock that never goes back.
"""

from __future__ import annotations

from collections import OrderedDict, deque

MAX_ADDRESSES = 10_000  # remembered at once; the one not seen for longest is forgotten


class Bucket:
    """A budget that refills steadily. It may be overdrawn: the debt is waited off afterwards."""

    def __init__(self, rate: float, size: float, now: float) -> None:
        """Start full.

        Args:
            rate: units a second.
            size: units at most.
        """
        self._rate = rate
        self._size = size
        self._level = size
        self._at = now

    def take(self, amount: float, now: float) -> float:
        """Take units; returns the seconds until the budget is out of debt."""
        self._level = self.level(now) - amount
        self._at = now
        return self._wait_s()

    def wait_s(self, now: float) -> float:
        """Return how long it takes until the budget is out of debt; 0 if it is now."""
        self.take(0.0, now)
        return self._wait_s()

    def level(self, now: float) -> float:
        return min(self._size, self._level + max(0.0, now - self._at) * self._rate)

    def _wait_s(self) -> float:
        if self._level >= 0:
            return 0.0
        return -self._level / self._rate if self._rate > 0 else float("inf")


class Attempts:
    """Counts failed attempts by address, and tells which addresses have to wait."""

    def __init__(self, max_per_minute: int) -> None:
        self._max = max_per_minute
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()  # bounded by MAX_ADDRESSES

    def wait_s(self, address: str, now: float) -> float:
        """Return how long an address has to wait before it may try again; 0 for not at all."""
        bucket = self._buckets.get(address)
        return 0.0 if bucket is None else bucket.wait_s(now)

    def fail(self, address: str, now: float) -> None:
        """Count a failed attempt."""
        bucket = self._buckets.get(address)
        if bucket is None:
            bucket = self._buckets[address] = Bucket(self._max / 60, self._max, now)
            if len(self._buckets) > MAX_ADDRESSES:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(address)
        bucket.take(1.0, now)


class Capacity:
    """How many sessions the machine carries: measured once at the start, then by what it does.

    A session takes what the engine gives: overload shows as late finals long before anything
    fails. So the limit falls to what is open when finals are late, and rises by one after a while
    in which they were early although every place was taken.
    """

    FINALS_WINDOW_S = 10.0  # of finals that are looked at
    MIN_STEP_S = 5.0  # between two changes
    MIN_FINALS = 3  # fewer say nothing
    MIN_SESSIONS = 2  # sessions: a single late one is not a sign of too many

    def __init__(self, ceiling: int, target_s: float, now: float) -> None:
        """Start at the ceiling.

        Args:
            ceiling: sessions never to be exceeded.
            target_s: how long the engine may take for a final, at the 95th percentile.
        """
        self._ceiling = ceiling
        self._target_s = target_s
        self._limit = float(ceiling)
        self._changed_at = now
        self._finals: deque[tuple[float, float]] = deque(maxlen=1000)  # when, and delay in seconds

    @property
    def limit(self) -> int:
        """Sessions that may be open now."""
        return min(self._ceiling, max(self.MIN_SESSIONS, int(self._limit)))

    def calibrate(self, num_sessions: float) -> None:
        """Set the limit that a measurement gave."""
        self._limit = min(float(self._ceiling), num_sessions)

    def record(self, delay_s: float, num_sessions: int, now: float) -> None:
        """Take the engine's delay for a final, and adapt the limit."""
        self._finals.append((now, delay_s))
        while now - self._finals[0][0] > self.FINALS_WINDOW_S:
            self._finals.popleft()
        if now - self._changed_at < self.MIN_STEP_S or len(self._finals) < self.MIN_FINALS:
            return
        delay = self.delay_s(now)
        assert delay is not None
        if delay > self._target_s:
            self._limit = max(float(self.MIN_SESSIONS), min(self._limit, num_sessions) * 0.9)
        elif delay < self._target_s / 2 and num_sessions >= self.limit:
            self._limit = min(float(self._ceiling), self._limit + 1.0)
        else:
            return
        self._changed_at = now

    def delay_s(self, now: float) -> float | None:
        """The 95th percentile of the engine's delay for the latest finals; None without any."""
        delays = sorted(delay for at, delay in self._finals if now - at <= self.FINALS_WINDOW_S)
        return delays[min(len(delays) - 1, int(0.95 * len(delays)))] if delays else None
