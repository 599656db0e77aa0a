"""Measure a session as the service runs it, and hold it to its key's budget of audio."""

from __future__ import annotations

import bisect

from engine.api import SAMPLE_RATE
from streamer.access.limits import Bucket
from streamer.operations.metrics import Metrics
from streamer.transcription.events import Event, Final, Partial, SpeechEnded

MAX_ARRIVALS = 2_000  # moments kept; at 20 ms a packet, longer than any segment is open
MAX_LIVE_PACE = 1.5  # seconds of audio a second beyond which the sender is not a live source


class SessionMeter:
    """Measures one session."""

    def __init__(self, metrics: Metrics, budget: Bucket | None, now: float) -> None:
        """Begin with an open session.

        Args:
            metrics: of the service.
            budget: of the key's audio, in seconds; shared by its sessions. None: no limit.
            now: seconds of a monotonic clock, as everywhere here.
        """
        self._metrics = metrics
        self._budget = budget
        self._opened_at = now
        # when the audio up to a position had arrived; both lists grow together
        self._positions: list[int] = []
        self._times_s: list[float] = []
        self._last_ends: dict[int, int] = {}  # where speech ended, by channel
        self._worded: set[tuple[int, int]] = set()  # open segments that have shown text

    def spend(self, audio_s: float, now: float) -> float | None:
        """Return how long so much audio must wait for its budget; None where there is no limit."""
        return None if self._budget is None else self._budget.take(audio_s, now)

    def receive(self, audio_s: float) -> None:
        """Count audio that is taken, over all channels."""
        self._metrics.received(audio_s)

    def arrive(self, position: int, now: float) -> None:
        """Note when the audio up to a position, in samples, had arrived."""
        self._positions.append(position)
        self._times_s.append(now)
        if len(self._positions) > MAX_ARRIVALS:
            del self._positions[: MAX_ARRIVALS // 2]
            del self._times_s[: MAX_ARRIVALS // 2]

    def observe(self, event: Event, received: int, now: float) -> None:
        """Count an event that goes out.

        Args:
            event: any.
            received: samples received so far.
            now: when it goes out.
        """
        metrics, segment = self._metrics, (event.channel, event.segment)
        match event:
            case SpeechEnded(channel, _, end):
                self._last_ends[channel] = end
            case Partial():
                metrics.lagged(event.lag / SAMPLE_RATE)
                has_text = bool(event.settled or event.volatile)
                if has_text and segment not in self._worded:
                    self._worded.add(segment)
                    delay_s = self._since(event.start, received, now)
                    if delay_s is not None:
                        metrics.first_word(delay_s)
            case Final():
                self._worded.discard(segment)
                spoken = self._last_ends.pop(event.channel, event.end)
                late_s = self._since(spoken, received, now) if event.is_endpoint else None
                metrics.final(late_s, event.reason)

    def _since(self, position: int, received: int, now: float) -> float | None:
        """Return how long ago a position arrived; None if forgotten or not live."""
        elapsed_s = max(now - self._opened_at, 1.0)
        index = bisect.bisect_left(self._positions, position)
        if index == len(self._positions) or received > MAX_LIVE_PACE * SAMPLE_RATE * elapsed_s:
            return None
        return now - self._times_s[index]
