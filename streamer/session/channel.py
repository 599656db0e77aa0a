"""One channel of a live session: its logic, its engine stream, and what it waits for."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections import deque
from contextlib import AsyncExitStack

from engine.api import Engine, Hypothesis, Samples, Stream, StreamLost, StreamOptions, Window
from streamer.audio.pcm import AudioDecoder, AudioFormat
from streamer.transcription.events import Event
from streamer.transcription.settings import SessionSettings
from streamer.transcription.transcriber import Transcriber

# Audio that has stopped is waited for this long with nothing else to do: where the process itself
# stood still, what came meanwhile is still in the socket, and its sender has not paused.
UNREAD_GRACE_S = 0.2
# One window at most; the engine's own limits are shorter, so this is for one that has none.
WINDOW_TIMEOUT_S = 180.0


class Channel:
    """Decodes the windows of one `Transcriber`, one at a time."""

    def __init__(self, settings: SessionSettings, events: deque[Event], number: int) -> None:
        self.number = number
        self.transcriber = Transcriber(settings, events, number)
        self.wake = asyncio.Event()  # set when the session may have a window or an end
        self._urgent = asyncio.Event()  # set when a window may have to make way for a final one
        self._decoder: AudioDecoder | None = None  # of packets for this channel alone
        self._stream: Stream | None = None
        self._options: StreamOptions | None = None  # of the open stream
        self._has_decoded = False  # the open stream has
        self._exit = AsyncExitStack()

    def notify(self) -> None:
        """Let the channel's task see what has changed in its session."""
        self.wake.set()
        self._note_urgent()

    def _note_urgent(self) -> None:
        if self.transcriber.preempt_at is not None:
            self._urgent.set()

    async def decode(self, engine: Engine, window: Window) -> Hypothesis | None:
        """Decode a window of the session; None where another one overtook it.

        Raises:
            EngineError: what the engine raises for this window.
            StreamLost: or it has not answered for very long.
        """
        try:
            async with asyncio.timeout(WINDOW_TIMEOUT_S):
                return await self._decode(engine, window)
        except TimeoutError:
            raise StreamLost("the engine did not answer in time") from None

    async def _decode(self, engine: Engine, window: Window) -> Hypothesis | None:
        stream = await self.open_stream(engine)
        self._urgent.clear()
        self._note_urgent()  # what waits already
        decoding = asyncio.ensure_future(stream.decode(window))
        urging = asyncio.ensure_future(self._urgent.wait())
        try:
            await asyncio.wait((decoding, urging), return_when=asyncio.FIRST_COMPLETED)
            while not decoding.done():
                at = self.transcriber.preempt_at
                delay_s = None if at is None else max(0.0, at - time.monotonic())
                await asyncio.wait((decoding,), timeout=delay_s)
                if not decoding.done() and self.transcriber.preempt(time.monotonic()):
                    return None
            self._has_decoded = True
            return decoding.result()
        finally:
            urging.cancel()
            if not decoding.done():
                decoding.cancel()
            await asyncio.gather(decoding, urging, return_exceptions=True)

    async def open_stream(self, engine: Engine) -> Stream:
        """Return a stream for the next window, a new one where its options ask for it.

        Raises:
            InvalidRequest, EngineBusy: the engine opens no such stream.
        """
        options = self.transcriber.stream_options
        # until the session settles on a language, each window is to detect its own
        is_stale = options != self._options or (options.language is None and self._has_decoded)
        if self._stream is None or is_stale:
            await self.close_stream()
            self._stream = await self._exit.enter_async_context(engine.stream(options))
            self._options, self._has_decoded = options, False
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
        wake_at = self.transcriber.wake_at
        await self._wait(None if wake_at is None else wake_at - UNREAD_GRACE_S - time.monotonic())

    async def read_on(self) -> None:
        """Let unread audio come in before the session takes its audio for stopped."""
        wake_at, now = self.transcriber.wake_at, time.monotonic()
        if wake_at is not None and now >= wake_at - UNREAD_GRACE_S:
            # timers are a nanosecond early at times, and then this would be waited for twice
            await self._wait(max(UNREAD_GRACE_S, wake_at - now + 0.001))

    async def _wait(self, timeout_s: float | None) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if timeout_s is None else max(0.0, timeout_s)):
                await self.wake.wait()
