"""Run a session's channels over an engine: the asyncio around the logic of `Transcriber`.

Every wire adapter speaks to a LiveSession: bytes go in, events come out. It owns one task per
channel, which decodes one window at a time, and it is the only place that reads the clock.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self

from engine.api import SAMPLE_RATE, Engine, Samples, StreamLost
from streamer.audio.pcm import AudioDecoder, AudioFormat
from streamer.session.channel import Channel
from streamer.session.retry import may_retry
from streamer.transcription.events import Event
from streamer.transcription.settings import SessionSettings

logger = logging.getLogger(__name__)

MAX_BACKLOG = 45 * SAMPLE_RATE  # sound ahead of transcription from which `feed` waits
MAX_EVENTS = 256  # events not taken from which decoding waits


class LiveSession:
    """Transcribe one client's sound; an async context manager.

    Entering opens the engine's streams; leaving aborts what is still decoding. `feed`, `finalize`
    and `end` are for one task, `events` for one other.
    """

    def __init__(
        self, engine: Engine, audio_format: AudioFormat, settings: SessionSettings
    ) -> None:
        self._engine = engine
        self._format = audio_format
        self._decoder = AudioDecoder(audio_format)
        # written by all channels, read by `events`; bounded by MAX_EVENTS and one window's
        self._events: deque[Event] = deque()
        self._channels = [Channel(settings, self._events, i) for i in range(audio_format.channels)]
        self._tasks: list[asyncio.Task[None]] = []
        self._changed = asyncio.Condition()  # events came or went, or decoding got further
        self._failure: BaseException | None = None
        self._is_ended = False
        self._num_running = len(self._channels)  # channels still transcribing

    async def __aenter__(self) -> Self:
        """Open a stream per channel.

        Raises:
            InvalidRequest: the model does not know the language, or cannot translate.
            EngineBusy: the engine serves as many streams as it can.
        """
        try:
            for channel in self._channels:
                await channel.open_stream(self._engine)
        except BaseException:
            await self._close_streams()
            raise
        self._tasks = [
            asyncio.create_task(self._run(channel), name=f"channel {channel.number}")
            for channel in self._channels
        ]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for task in self._tasks:
            task.cancel()
        try:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        finally:
            # also where whoever leaves is cancelled meanwhile
            await self._close_streams()

    @property
    def duration(self) -> int:
        """Samples received, of the channel that has most."""
        return max(channel.transcriber.received for channel in self._channels)

    @property
    def num_segments(self) -> int:
        """Segments closed so far, on all channels."""
        return sum(channel.transcriber.num_segments for channel in self._channels)

    def opened_at(self, channel: int = 0) -> int | None:
        """Say where the segment that is open now began; its SpeechStarted may be still to come."""
        return self._channels[channel].transcriber.opened_at

    def num_begun(self, channel: int) -> int:
        """Segments of a channel begun so far, whether or not `events` has told of them."""
        return self._channels[channel].transcriber.num_begun

    async def feed(self, data: bytes, channel: int | None = None) -> None:
        """Take a packet; waits while the sound is too far ahead of its transcription.

        Args:
            data: in the session's format, any number of bytes.
            channel: the data is mono and belongs to this channel; None: all, interleaved.

        Raises:
            ValueError: a WAV header contradicts the format, or there is no such channel.
            EngineError: the engine refused this session's windows.
        """
        assert not self._is_ended, "sound after the end"
        if channel is None:
            decoder, channels = self._decoder, self._channels
        else:
            if not 0 <= channel < len(self._channels):
                raise ValueError(f"expected a channel below {len(self._channels)}, got {channel}")
            channels = self._channels[channel : channel + 1]
            decoder = channels[0].mono_decoder(self._format)
        step = decoder.format.bytes_per_second
        for first in range(0, len(data), step):
            decoded = decoder.decode(data[first : first + step])
            await self._receive(channels, decoded, len(data) * SAMPLE_RATE // step)

    async def finalize(self, channel: int | None = None) -> None:
        """Close the open segment of one channel, or of all; its Final follows."""
        for each in self._channels if channel is None else [self._channels[channel]]:
            each.transcriber.finalize()
            each.notify()
        await self._publish()

    async def forget(self) -> None:
        """Close the open segment of every channel, and keep the sound so far out of the next."""
        for each in self._channels:
            each.transcriber.forget()
            each.notify()
        await self._publish()

    def update(self, settings: SessionSettings) -> None:
        """Use other settings from the next segment on."""
        for channel in self._channels:
            channel.transcriber.update(settings)

    async def end(self) -> None:
        """No more sound comes: `events` ends when all of it is transcribed."""
        if self._is_ended:
            return
        await self._receive(self._channels, self._decoder.flush(), 0)
        for channel in self._channels:
            for samples in channel.flush():
                await self._receive([channel], [samples], 0)
        self._is_ended = True
        for channel in self._channels:
            channel.transcriber.end()
            channel.notify()
        await self._publish()

    async def events(self) -> AsyncIterator[Event]:
        """Yield what the session says, until all sound is transcribed after `end`.

        Raises:
            EngineError: the engine refused this session's windows.
        """
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: self._events or self._is_over)
                events = list(self._events)
                self._events.clear()
                self._changed.notify_all()
            for event in events:
                yield event
            if not events:
                if self._failure is not None:
                    raise self._failure
                return

    @property
    def _is_over(self) -> bool:
        return self._failure is not None or not self._num_running

    async def _receive(self, channels: list[Channel], decoded: list[Samples], packet: int) -> None:
        """Pass samples on, then wait until transcription is near enough."""
        for channel, samples in zip(channels, decoded, strict=True):
            channel.transcriber.receive_audio(samples, time.monotonic(), packet)
            channel.notify()
        await self._publish()
        if not self._has_room(channels):
            async with self._changed:
                await self._changed.wait_for(lambda: self._has_room(channels))
        if self._failure is not None:
            raise self._failure

    def _has_room(self, channels: list[Channel]) -> bool:
        is_near = all(channel.transcriber.backlog < MAX_BACKLOG for channel in channels)
        return is_near or self._failure is not None

    async def _publish(self, *, has_decoded: bool = False) -> None:
        """Wake whatever waits for events or for a decode; most packets bring none."""
        if self._events or has_decoded:
            async with self._changed:
                self._changed.notify_all()

    async def _run(self, channel: Channel) -> None:
        try:
            await self._transcribe(channel)
        except Exception as error:
            # carried to whoever reads the events or feeds the sound
            self._failure = error
        self._num_running -= 1
        await self._publish(has_decoded=True)

    async def _transcribe(self, channel: Channel) -> None:
        transcriber, num_lost = channel.transcriber, 0
        while not transcriber.is_finished:
            if len(self._events) >= MAX_EVENTS:
                async with self._changed:
                    await self._changed.wait_for(lambda: len(self._events) < MAX_EVENTS)
            channel.wake.clear()
            await channel.read_on()
            window = transcriber.next_window(time.monotonic())
            await self._publish()
            if window is None:
                await channel.sleep()
                continue
            try:
                hypothesis = await channel.decode(self._engine, window)
            except StreamLost:
                num_lost += 1
                logger.debug("channel %d: stream lost", channel.number)
                await channel.close_stream()
                transcriber.window_failed()
                if not await may_retry(num_lost):
                    raise
                continue
            num_lost = 0
            if hypothesis is not None:
                transcriber.receive_hypothesis(hypothesis, time.monotonic())
                await self._publish(has_decoded=True)

    async def _close_streams(self) -> None:
        for channel in self._channels:
            await channel.close_stream()
