"""The sessions that client secrets were made for, until the secrets expire.

The secret itself is a signed token (streamer.access.keys) that any replica can check. The session
that it was made for is kept here, in this process; a secret unknown here opens a default session.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from streamer.access.keys import digest_of
from streamer.protocols.openai.realtime.options import RealtimeConfig

MAX_SECRETS = 10_000  # kept at once; the oldest goes first


@dataclass(frozen=True, slots=True)
class _Bound:
    config: RealtimeConfig
    expires_at: int  # Unix time, seconds


class SecretSessions:
    """Remembers which session a secret is for, by the secret's digest."""

    def __init__(self) -> None:
        self._bound: OrderedDict[bytes, _Bound] = OrderedDict()

    def bind(self, secret: str, config: RealtimeConfig, expires_at: int) -> None:
        self._bound[digest_of(secret)] = _Bound(config, expires_at)
        if len(self._bound) > MAX_SECRETS:
            self._bound.popitem(last=False)

    def find(self, digests: frozenset[bytes], now: float) -> RealtimeConfig | None:
        """Find the session of a secret that was shown; None if it is not one, or has expired.

        A secret may open many sessions until then.
        """
        for digest in digests:
            bound = self._bound.get(digest)
            if bound is not None and now < bound.expires_at:
                return bound.config
        return None
