"""When a client tries to come back after its connection broke, and when it gives up."""

from __future__ import annotations

import random

# doubled each time, with jitter, so that the clients of a server that restarts do not all return
# in the same instant
FIRST_DELAY_S, MAX_DELAY_S = 0.5, 30.0
STABLE_S = 10.0  # a connection that lasted this long starts the delays anew
PATIENCE_S = 300.0  # of attempts in a row, then the client gives up


class Retries:
    """The attempts of one client. `now` is in seconds, of any clock that only goes forward."""

    def __init__(self) -> None:
        self._ready_at = float("inf")  # of the connection that is open
        # since the last connection that was stable; None while the first one lasts
        self._broken_since: float | None = None
        self._num_attempts = 0

    def ready(self, now: float) -> None:
        """Note that a session is open on the connection."""
        self._ready_at = now

    def broke(self, now: float) -> None:
        """Note that the connection broke."""
        if now - self._ready_at > STABLE_S or self._broken_since is None:
            self._num_attempts, self._broken_since = 0, now
        self._ready_at = float("inf")

    def next_delay(self, now: float, at_least: float = 0.0) -> float | None:
        """Give the seconds until the next attempt; None when it is time to give up.

        Args:
            at_least: what the server asked for, in seconds.
        """
        assert self._broken_since is not None, "it broke"
        delay_s = max(at_least, min(MAX_DELAY_S, FIRST_DELAY_S * 2**self._num_attempts))
        delay_s *= random.uniform(0.75, 1.25)
        self._num_attempts += 1
        return delay_s if now + delay_s - self._broken_since <= PATIENCE_S else None
