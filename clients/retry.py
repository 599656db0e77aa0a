"""When a client reconnects after its connection broke, and when it gives up."""

from __future__ import annotations

import random

# doubled each time, with jitter, so that the clients of a restarting server do not all reconnect
# in the same instant
FIRST_DELAY_S, MAX_DELAY_S = 0.5, 30.0
STABLE_S = 10.0  # a connection that lasted this long resets the delays
GIVE_UP_AFTER_S = 300.0  # of attempts in a row


class Retries:
    """The attempts of one client. `now` is in seconds, from any monotonic clock."""

    def __init__(self) -> None:
        self._ready_at = float("inf")  # of the connection that is open
        # when the last stable connection broke; None while the first one lasts
        self._broken_since: float | None = None
        self._num_attempts = 0

    def ready(self, now: float) -> None:
        """Record that a session is open on the connection."""
        self._ready_at = now

    def broke(self, now: float) -> None:
        """Record that the connection broke."""
        if now - self._ready_at > STABLE_S or self._broken_since is None:
            self._num_attempts, self._broken_since = 0, now
        self._ready_at = float("inf")

    def next_delay(self, now: float, at_least: float = 0.0) -> float | None:
        """Return the seconds until the next attempt, or None when it is time to give up.

        Args:
            at_least: the delay that the server asked for, in seconds.
        """
        assert self._broken_since is not None, "it broke"
        delay_s = max(at_least, min(MAX_DELAY_S, FIRST_DELAY_S * 2**self._num_attempts))
        delay_s *= random.uniform(0.75, 1.25)
        self._num_attempts += 1
        return delay_s if now + delay_s - self._broken_since <= GIVE_UP_AFTER_S else None
