"""Run a session's channels over an engine: the asyncio around the logic of `Session`.

Every wire adapter speaks to a LiveSession: bytes go in, events come out. It owns one task per
channel, which decodes one window at a time, and it is the only place that reads the clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from engine.api import (
    SAMPLE_RATE,
    Engine,
    Hypothesis,
    Samples,
    Stream,
    StreamLost,
    StreamOptions,
    Window,
)
from streamer.audio import AudioDecoder, AudioFormat
from streamer.events import Event
from streamer.session import Session
from streamer.settings import SessionSettings

logger = logging.getLogger(__name__)

MAX_BACKLOG = 45 * SAMPLE_RATE  # sound ahead of transcription from which `feed` waits
MAX_EVENTS = 256  # events not taken from which decoding waits
MAX_LOSSES = 5  # streams lost in a row before the session gives up
OVERTAKE_S = 0.1  # between two looks whether the window in flight holds up a more urgent one
RETRY_S = 0.2  # before another stream is opened, times the losses in a row


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
        self._channels = [_Channel(settings, i) for i in range(audio_format.channels)]
        self._tasks: list[asyncio.Task[None]] = []
        self._events: deque[Event] = deque()  # bounded by MAX_EVENTS and one window's
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
                await channel.stream(self._engine)
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
        return max(channel.session.received for channel in self._channels)

    @property
    def num_segments(self) -> int:
        """Segments closed so far, on all channels."""
        return sum(channel.session.num_segments for channel in self._channels)

    def opened_at(self, channel: int = 0) -> int | None:
        """Say where the segment that is open now began; its SpeechStarted may be still to come."""
        return self._channels[channel].session.opened_at

    def num_begun(self, channel: int) -> int:
        """Segments of a channel begun so far, whether or not `events` has told of them."""
        return self._channels[channel].session.num_begun

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
            each.session.finalize(time.monotonic())
            each.wake.set()
        await self._publish()

    async def forget(self) -> None:
        """Close the open segment of every channel, and keep the sound so far out of the next."""
        for each in self._channels:
            each.session.forget(time.monotonic())
            each.wake.set()
        await self._publish()

    def update(self, settings: SessionSettings) -> None:
        """Use other settings from the next segment on."""
        for channel in self._channels:
            channel.session.update(settings)

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
            channel.session.end(time.monotonic())
            channel.wake.set()
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

    async def _receive(self, channels: list[_Channel], decoded: list[Samples], packet: int) -> None:
        """Pass samples on, then wait until transcription is near enough."""
        for channel, samples in zip(channels, decoded, strict=True):
            channel.session.receive_audio(samples, time.monotonic(), packet)
            channel.wake.set()
        await self._publish()
        async with self._changed:
            await self._changed.wait_for(
                lambda: (
                    self._failure is not None
                    or all(channel.session.backlog < MAX_BACKLOG for channel in channels)
                )
            )
        if self._failure is not None:
            raise self._failure

    async def _publish(self) -> None:
        async with self._changed:
            for channel in self._channels:
                self._events += channel.session.take_events()
            self._changed.notify_all()

    async def _run(self, channel: _Channel) -> None:
        try:
            await self._transcribe(channel)
        except Exception as error:
            # carried to whoever reads the events or feeds the sound
            self._failure = error
        self._num_running -= 1
        await self._publish()

    async def _transcribe(self, channel: _Channel) -> None:
        session, num_lost = channel.session, 0
        while not session.is_finished:
            async with self._changed:
                await self._changed.wait_for(lambda: len(self._events) < MAX_EVENTS)
            channel.wake.clear()
            window = session.next_window(time.monotonic())
            await self._publish()
            if window is None:
                await channel.sleep()
                continue
            try:
                stream = await channel.stream(self._engine)
                hypothesis = await self._decode(channel, stream, window)
            except StreamLost:
                num_lost += 1
                logger.debug("channel %d: stream lost", channel.number)
                await channel.close_stream()
                session.window_failed(time.monotonic())
                if num_lost > MAX_LOSSES:
                    raise
                await asyncio.sleep(RETRY_S * num_lost)
                continue
            num_lost, channel.has_decoded = 0, True
            if hypothesis is not None:
                session.receive_hypothesis(hypothesis, time.monotonic())
                await self._publish()

    async def _decode(self, channel: _Channel, stream: Stream, window: Window) -> Hypothesis | None:
        """Decode a window; None where another one of its session overtook it."""
        decoding = asyncio.ensure_future(stream.decode(window))
        try:
            while not (await asyncio.wait((decoding,), timeout=OVERTAKE_S))[0]:
                if channel.session.overtake(time.monotonic()):
                    return None
            return decoding.result()
        finally:
            if not decoding.done():
                decoding.cancel()
                await asyncio.gather(decoding, return_exceptions=True)

    async def _close_streams(self) -> None:
        for channel in self._channels:
            await channel.close_stream()


class _Channel:
    """What belongs to one channel: its logic, its engine stream, and its own packets' decoder."""

    def __init__(self, settings: SessionSettings, number: int) -> None:
        self.number = number
        self.session = Session(settings, number)
        self.wake = asyncio.Event()  # set when the session may have a window or an end
        self._decoder: AudioDecoder | None = None  # of packets for this channel alone
        self._stream: Stream | None = None
        self._options: StreamOptions | None = None  # of the open stream
        self.has_decoded = False  # the open stream has
        self._exit = AsyncExitStack()

    async def stream(self, engine: Engine) -> Stream:
        """Return a stream for the session's next window, a new one where its options ask for it."""
        options = self.session.stream_options
        # until the session settles on a language, each window is to detect its own
        is_stale = options != self._options or (options.language is None and self.has_decoded)
        if self._stream is None or is_stale:
            await self.close_stream()
            self._stream = await self._exit.enter_async_context(engine.stream(options))
            self._options, self.has_decoded = options, False
        return self._stream

    async def close_stream(self) -> None:
        self._stream = None
        await self._exit.aclose()

    def mono_decoder(self, audio_format: AudioFormat) -> AudioDecoder:
        """Return the decoder of packets that are for this channel alone."""
        if self._decoder is None:
            self._decoder = AudioDecoder(dataclasses.replace(audio_format, channels=1))
        return self._decoder

    def flush(self) -> list[Samples]:
        """Return what the decoder of this channel's own packets still holds."""
        return [] if self._decoder is None else self._decoder.flush()

    async def sleep(self) -> None:
        """Wait until there may be something to do."""
        wake_at = self.session.wake_at
        timeout_s = None if wake_at is None else max(0.0, wake_at - time.monotonic())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self.wake.wait()
