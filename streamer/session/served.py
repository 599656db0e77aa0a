"""A session as the service runs it: measured, held to its key's budget, and stopped from outside.

Every protocol opens its sessions through streamer.service and gets one of these. It is a
LiveSession by inheritance, so that adapters need not know of it.
"""

from __future__ import annotations

import asyncio
import bisect
import time
from collections.abc import AsyncIterator

from engine.api import SAMPLE_RATE, Engine
from streamer.access.keys import ApiKey
from streamer.access.limits import Bucket
from streamer.audio.pcm import AudioFormat
from streamer.operations.metrics import Metrics
from streamer.session.live import LiveSession
from streamer.transcription.events import Event, Final, Partial, SpeechEnded
from streamer.transcription.settings import SessionSettings

MAX_ARRIVALS = 2_000  # moments kept; at 20 ms a packet, longer than any segment is open
LIVE_PACE = 1.5  # seconds of sound a second beyond which the sender is no live source


class ServedSession(LiveSession):
    """A LiveSession that counts what it does."""

    def __init__(
        self,
        engine: Engine,
        audio_format: AudioFormat,
        settings: SessionSettings,
        *,
        key: ApiKey,
        budget: Bucket | None,
        metrics: Metrics,
    ) -> None:
        """Prepare a session; entering it opens it.

        Args:
            key: whose session it is.
            budget: of the key's sound, in seconds; shared by its sessions. None: no limit.
        """
        super().__init__(engine, audio_format, settings)
        self.key = key
        self._audio_format = audio_format
        self._budget = budget
        self._metrics = metrics
        self._feeding = asyncio.Lock()
        # its client is gone for good: it only makes final what was said, and takes no place
        self.is_leaving = False
        self._is_stopped = False  # the service ended the sound; what still comes is dropped
        self._opened_at = time.monotonic()
        # when the sound up to a position had arrived; both lists grow together
        self._positions: list[int] = []
        self._times_s: list[float] = []
        self._last_ends: dict[int, int] = {}  # where speech ended, by channel
        self._worded: set[tuple[int, int]] = set()  # open segments that have shown text

    async def feed(self, data: bytes, channel: int | None = None) -> None:
        num_channels = 1 if channel is not None else self._audio_format.channels
        frame_bytes = self._audio_format.frame_bytes // self._audio_format.channels * num_channels
        audio_s = len(data) / frame_bytes / self._audio_format.sample_rate
        if self._budget is not None:
            # the wait stops reading from the socket, so TCP slows the sender down
            await asyncio.sleep(self._budget.take(audio_s * num_channels, time.monotonic()))
        async with self._feeding:
            if self._is_stopped:
                return
            self._metrics.received(audio_s * num_channels)
            arrived_at = time.monotonic()
            await super().feed(data, channel)
            self._arrive(arrived_at)

    async def finalize(self, channel: int | None = None) -> None:
        if not self._is_stopped:
            await super().finalize(channel)

    async def forget(self) -> None:
        if not self._is_stopped:
            await super().forget()

    async def stop(self) -> None:
        """End the sound from the service's side; the finals of what came before follow."""
        self._is_stopped = True
        async with self._feeding:
            await self.end()

    async def events(self) -> AsyncIterator[Event]:
        async for event in super().events():
            self._observe(event, time.monotonic())
            yield event

    def _arrive(self, now: float) -> None:
        self._positions.append(self.duration)
        self._times_s.append(now)
        if len(self._positions) > MAX_ARRIVALS:
            del self._positions[: MAX_ARRIVALS // 2]
            del self._times_s[: MAX_ARRIVALS // 2]

    def _since(self, position: int, now: float) -> float | None:
        """Say how long ago a position arrived; None if forgotten or not live."""
        elapsed_s = max(now - self._opened_at, 1.0)
        index = bisect.bisect_left(self._positions, position)
        if index == len(self._positions) or self.duration > LIVE_PACE * SAMPLE_RATE * elapsed_s:
            return None
        return now - self._times_s[index]

    def _observe(self, event: Event, now: float) -> None:
        metrics, segment = self._metrics, (event.channel, event.segment)
        match event:
            case SpeechEnded(channel, _, end):
                self._last_ends[channel] = end
            case Partial():
                metrics.lagged(event.lag / SAMPLE_RATE)
                has_text = bool(event.settled or event.volatile)
                if has_text and segment not in self._worded:
                    self._worded.add(segment)
                    delay_s = self._since(event.start, now)
                    if delay_s is not None:
                        metrics.first_word(delay_s)
            case Final():
                self._worded.discard(segment)
                spoken = self._last_ends.pop(event.channel, event.end)
                late_s = self._since(spoken, now) if event.is_endpoint else None
                metrics.final(late_s, event.reason)
