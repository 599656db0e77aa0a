"""Run a session's channels over an engine: the asyncio around the logic of `Transcriber`.

Every protocol speaks to a LiveSession: bytes go in, events come out. It owns one task per channel,
which decodes one window at a time, and it reads the clock for all that it owns.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self

from engine.api import SAMPLE_RATE, Engine, EngineBusy, StreamLost
from streamer.audio.pcm import AudioDecoder, AudioFormat
from streamer.session.channel import Channel
from streamer.session.engine_retry import may_retry
from streamer.session.meter import SessionMeter
from streamer.transcription.events import Event
from streamer.transcription.settings import SessionSettings

logger = logging.getLogger(__name__)

MAX_BACKLOG = 45 * SAMPLE_RATE  # audio ahead of transcription from which `feed` waits
MAX_EVENTS = 256  # events not taken from which decoding waits
PIECES_PER_S = 4  # that a packet is cut into: each is 1 ms of work, and more on a busy machine
MAX_UNBROKEN = 3_200  # 0.2 s of audio taken, in however many packets, before others have a turn
# that a new session waits for its streams: an engine that does not answer is busy to newcomers,
# and they hear of it before whoever waits for their `start` gives up
OPEN_TIMEOUT_S = 10.0


class LiveSession:
    """Transcribe one client's audio; an async context manager.

    Entering opens the engine's streams; leaving aborts what is still decoding. `feed`, `finalize`
    and `end` are for one task, `events` for one other, `stop` for any.

    Attributes:
        is_leaving: its client is gone for good, so it only makes final what was said, and takes no
            place from others.
    """

    def __init__(
        self,
        engine: Engine,
        audio_format: AudioFormat,
        settings: SessionSettings,
        meter: SessionMeter | None = None,
    ) -> None:
        """Prepare a session; entering it opens it.

        Args:
            engine: decodes its windows.
            audio_format: of what `feed` takes.
            settings: until `update`.
            meter: counts what it does and slows it down; None outside the service.
        """
        self.is_leaving = False
        self._engine = engine
        self._meter = meter
        self._format = audio_format
        self._decoder = AudioDecoder(audio_format)
        # written by all channels, read by `events`; bounded by MAX_EVENTS and one window's
        self._events: deque[Event] = deque()
        self._channels = [Channel(settings, self._events, i) for i in range(audio_format.channels)]
        self._tasks: list[asyncio.Task[None]] = []
        self._changed = asyncio.Condition()  # events came or went, or decoding got further
        self._failure: BaseException | None = None
        self._feeding = asyncio.Lock()
        self._is_ended = False
        self._is_stopped = False  # the service ended the audio; what still comes is dropped
        self._num_running = len(self._channels)  # channels still transcribing
        self._num_unbroken = 0  # samples taken since other tasks had a turn

    async def __aenter__(self) -> Self:
        """Open a stream per channel.

        Raises:
            InvalidRequest: the model does not know the language, or cannot translate.
            EngineBusy: the engine serves as many streams as it can, or does not answer.
        """
        try:
            async with asyncio.timeout(OPEN_TIMEOUT_S):
                for channel in self._channels:
                    await channel.open_stream(self._engine)
        except TimeoutError:
            await self._close_streams()
            raise EngineBusy("the engine does not answer; try again later") from None
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
        """Return where the open segment began, or None; its SpeechStarted may be still to come."""
        return self._channels[channel].transcriber.opened_at

    def num_begun(self, channel: int) -> int:
        """Return how many segments of a channel have begun, those included still to be told."""
        return self._channels[channel].transcriber.num_begun

    async def feed(self, data: bytes, channel: int | None = None) -> None:
        """Take a packet; waits while the audio is too far ahead of its transcription.

        Args:
            data: in the session's format, any number of bytes.
            channel: the data is mono and belongs to this channel; None: all, interleaved.

        Raises:
            ValueError: a WAV header contradicts the format, or there is no such channel.
            EngineError: the engine refused this session's windows.
        """
        decoder, channels = self._decoder, self._channels
        if channel is not None:
            if not 0 <= channel < len(channels):
                raise ValueError(f"expected a channel below {len(channels)}, got {channel}")
            channels = channels[channel : channel + 1]
            decoder = channels[0].mono_decoder(self._format)
        second = decoder.format.bytes_per_second
        audio_s = len(data) / second * len(channels)
        wait_s = self._meter.spend(audio_s, time.monotonic()) if self._meter else None
        if wait_s is not None:
            # the wait stops reading from the socket, so TCP slows the sender down
            await asyncio.sleep(wait_s)
        async with self._feeding:
            if self._is_stopped:
                return
            assert not self._is_ended, "audio after the end"
            arrived_at = time.monotonic()
            if self._meter:
                self._meter.receive(audio_s)
            packet = len(data) * SAMPLE_RATE // second
            size = second // PIECES_PER_S
            for first in range(0, len(data), size):
                decoded = decoder.decode(data[first : first + size])
                for each, samples in zip(channels, decoded, strict=True):
                    each.transcriber.receive_audio(samples, time.monotonic(), packet)
                    each.notify()
                    self._num_unbroken += len(samples)
                await self._catch_up(channels)
            if self._meter:
                self._meter.arrive(self.duration, arrived_at)

    async def finalize(self, channel: int | None = None) -> None:
        """Close the open segment of one channel, or of all; its Final follows."""
        if self._is_stopped:
            return
        for each in self._channels if channel is None else [self._channels[channel]]:
            each.transcriber.finalize()
            each.notify()
        await self._publish()

    async def forget(self) -> None:
        """Close the open segment of every channel, and keep the audio so far out of the next."""
        if self._is_stopped:
            return
        for each in self._channels:
            each.transcriber.forget()
            each.notify()
        await self._publish()

    def update(self, settings: SessionSettings) -> None:
        """Use other settings from the next segment on."""
        for channel in self._channels:
            channel.transcriber.update(settings)

    async def end(self) -> None:
        """Take no more audio: `events` ends when all of it is transcribed."""
        if self._is_ended:
            return
        rests = list(zip(self._channels, self._decoder.flush(), strict=True))
        rests += [(channel, rest) for channel in self._channels for rest in channel.flush()]
        for channel, rest in rests:
            channel.transcriber.receive_audio(rest, time.monotonic())
            channel.notify()
            await self._catch_up([channel])
        self._is_ended = True
        for channel in self._channels:
            channel.transcriber.end()
            channel.notify()
        await self._publish()

    async def stop(self) -> None:
        """End the audio from the service's side; the finals of what came before follow."""
        self._is_stopped = True
        async with self._feeding:
            await self.end()

    async def events(self) -> AsyncIterator[Event]:
        """Yield what the session says, until all audio is transcribed after `end`.

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
                if self._meter:
                    self._meter.observe(event, self.duration, time.monotonic())
                yield event
            if not events:
                if self._failure is not None:
                    raise self._failure
                return

    @property
    def _is_over(self) -> bool:
        return self._failure is not None or not self._num_running

    async def _catch_up(self, channels: list[Channel]) -> None:
        """Wait until transcription is near enough to what was received."""
        await self._publish()
        if self._num_unbroken >= MAX_UNBROKEN:
            self._num_unbroken = 0
            await asyncio.sleep(0)
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
            # carried to whoever reads the events or feeds the audio
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
                # asking for a window may have closed the last utterance: nothing wakes it then
                if not transcriber.is_finished:
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
