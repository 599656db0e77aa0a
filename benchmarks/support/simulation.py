"""Play audio to a session under a simulated clock: audio time advances, decoding costs seconds."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from engine.api import SAMPLE_RATE, Engine, Hypothesis, Samples, Stream, StreamOptions, Window
from streamer.transcription.events import Event, Final
from streamer.transcription.settings import SessionSettings
from streamer.transcription.transcriber import Transcriber


@dataclass(frozen=True, slots=True)
class Told:
    """An event and when it came, in seconds from the start of the audio."""

    at: float
    event: Event


@dataclass(slots=True)
class Played:
    """What came of a recording."""

    told: list[Told] = field(default_factory=list)
    windows: list[tuple[int, int]] = field(default_factory=list)  # start and end of each

    @property
    def finals(self) -> list[Final]:
        return [told.event for told in self.told if isinstance(told.event, Final)]

    @property
    def text(self) -> str:
        return " ".join(final.text for final in self.finals if final.text)


def model_cost(window: Window) -> float:
    """Seconds that base takes for a window on two cores, roughly: benchmarks of the engine."""
    return 0.10 + 0.012 * len(window.audio) / SAMPLE_RATE


async def play(
    engine: Engine,
    samples: Samples,
    settings: SessionSettings,
    *,
    packet: int = SAMPLE_RATE // 10,
    cost: Callable[[Window], float] = model_cost,
) -> Played:
    """Play samples at the pace of real time, in packets that arrive when they are full.

    Windows are decoded for real, but take as long as `cost` says. A large `packet` leaves out the
    windows that only refresh what is shown, since by then the marked ones are due.
    """
    events: deque[Event] = deque()
    session, played, now = Transcriber(settings, events), Played(), 0.0
    done_at, hypothesis = 0.0, None
    async with _Streams(engine) as streams:

        async def turn() -> None:
            nonlocal done_at, hypothesis
            if hypothesis is None and (window := session.next_window(now)) is not None:
                hypothesis = await streams.decode(window, session.stream_options)
                done_at = now + cost(window)
                played.windows.append((window.start, window.end))
            played.told += [Told(now, event) for event in events]
            events.clear()

        async def finish() -> None:
            nonlocal now, hypothesis
            assert hypothesis is not None
            now = max(now, done_at)
            session.receive_hypothesis(hypothesis, now)
            hypothesis = None
            await turn()

        for first in range(0, len(samples), packet):
            arrival = min(first + packet, len(samples)) / SAMPLE_RATE
            while hypothesis is not None and done_at <= arrival:
                await finish()
            now = max(now, arrival)
            session.receive_audio(samples[first : first + packet], now)
            await turn()
        session.end()
        await turn()
        while not session.is_finished:
            if hypothesis is None:
                await turn()
            else:
                await finish()
    return played


class _Streams:
    """The engine stream that a session's windows belong to, renewed as LiveSession does."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._stack = AsyncExitStack()
        self._options: StreamOptions | None = None
        self._stream: Stream | None = None

    async def __aenter__(self) -> _Streams:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._stack.aclose()

    async def decode(self, window: Window, options: StreamOptions) -> Hypothesis:
        if self._stream is None or options != self._options or options.language is None:
            await self._stack.aclose()
            self._options = options
            self._stream = await self._stack.enter_async_context(self._engine.stream(options))
        return await self._stream.decode(window)
