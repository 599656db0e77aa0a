"""What all routes share: the engine, once it is loaded, and the sessions that it serves.

Routes ask here whether there is room, and open their sessions here, so that limits, counts and the
shutdown hold for every protocol alike.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable
from http import HTTPStatus

from engine.api import (
    SAMPLE_RATE,
    Engine,
    EngineBusy,
    EngineError,
    Hypothesis,
    ModelInfo,
    Samples,
    Watched,
)
from streamer.access import key_file
from streamer.access.keys import ApiKey, current_key
from streamer.access.limits import Bucket, Capacity
from streamer.access.refusal import RETRY_AFTER_S, Refusal, no_room
from streamer.audio.pcm import AudioFormat
from streamer.config import ServerConfig
from streamer.operations.capacity import measure_capacity
from streamer.operations.loading import run_in_daemon, warm_up
from streamer.operations.metered_engine import MeteredEngine
from streamer.operations.metrics import Metrics
from streamer.recording.transcribe import transcribe
from streamer.session.live import LiveSession
from streamer.session.meter import SessionMeter
from streamer.transcription.settings import SessionSettings

logger = logging.getLogger(__name__)

RECORDING_STREAMS = 4  # windows of a file decoded at once while no session is live


class Service:
    """One running service. `run` loads the engine; the routes use the rest."""

    def __init__(self, config: ServerConfig, load_engine: Callable[[], Engine]) -> None:
        """Set up.

        Raises:
            KeyFileError: the keys cannot be read.
        """
        self.config = config
        self.keys = key_file.KeySource(config)
        self.access = self.keys.access
        self.metrics = Metrics()
        self._started_at = time.monotonic()
        self.capacity = Capacity(config.max_sessions, config.final_target_s, self._started_at)
        self._budgets: dict[str, Bucket] = {}  # of audio, by key; as many as there are keys
        # why the engine could not be loaded; the service is of no use from then on
        self.failure: Exception | None = None
        self._load_engine = load_engine
        self._engine: Engine | None = None
        self._metered: MeteredEngine | None = None  # the same, as sessions use it
        self._settled = asyncio.Event()  # loaded, or failed to
        self._sessions: dict[LiveSession, ApiKey] = {}  # and whose they are
        self._num_recordings = 0
        self._all_closed = asyncio.Event()
        self._all_closed.set()
        # set once, when the service is asked to stop: no new sessions, running ones finish
        self.draining = asyncio.Event()
        self.metrics.watch("open_sessions", "Sessions open now", lambda: self.num_sessions)
        self.metrics.watch(
            "session_limit", "Sessions that the machine carries", lambda: self.capacity.limit
        )
        self.metrics.watch(
            "open_recordings", "Whole files in work now", lambda: self._num_recordings
        )

    @contextlib.asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Load and warm up the engine in the background for as long as the context is open."""
        tasks = [asyncio.create_task(self._load()), asyncio.create_task(self._watch_keys())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def wait_loaded(self) -> None:
        """Return when the engine is loaded or has failed to load (then `failure` is set)."""
        await self._settled.wait()

    @property
    def is_loaded(self) -> bool:
        return self._engine is not None

    @property
    def info(self) -> ModelInfo | None:
        """The model, or None while it is being loaded."""
        return self._engine.info if self._engine is not None else None

    @property
    def num_sessions(self) -> int:
        """Sessions that take a place."""
        return sum(not live.is_leaving for live in self._sessions)

    @property
    def uptime_s(self) -> float:
        return time.monotonic() - self._started_at

    @property
    def final_delay_s(self) -> float | None:
        """The engine's delay for the latest finals, 95th percentile; None without any."""
        return self.capacity.delay_s(time.monotonic())

    def refusal(self) -> Refusal | None:
        """Return why the current key cannot open a session now, or None."""
        if (refusal := self._unreadiness()) is not None:
            return refusal
        if self.num_sessions >= self.capacity.limit:
            return no_room("busy", f"all {self.capacity.limit} sessions are taken")
        return self._key_refusal(current_key.get())

    def _key_refusal(self, key: ApiKey) -> Refusal | None:
        most = key.limits.max_sessions
        num_open = sum(owner.name == key.name for owner in self._sessions.values())
        if most is not None and num_open >= most:
            return Refusal(
                HTTPStatus.TOO_MANY_REQUESTS,
                "key_sessions",
                f"this key may have {most} sessions at once",
                RETRY_AFTER_S,
            )
        return self._budget_refusal(key)

    def _budget_refusal(self, key: ApiKey) -> Refusal | None:
        budget = self._budget(key)
        if budget is not None and (wait_s := budget.wait_s(time.monotonic())) > 0:
            return Refusal(
                HTTPStatus.TOO_MANY_REQUESTS,
                "key_audio",
                f"this key may send {key.limits.audio_s_per_minute:g} s of audio a minute",
                wait_s,
            )
        return None

    def _budget(self, key: ApiKey) -> Bucket | None:
        """Find a key's budget of audio, in seconds; None where it has no limit."""
        per_minute = key.limits.audio_s_per_minute
        if per_minute is None:
            return None
        if key.name not in self._budgets:
            self._budgets[key.name] = Bucket(per_minute / 60, per_minute, time.monotonic())
        return self._budgets[key.name]

    def recording_refusal(self) -> Refusal | None:
        """Return why no whole file can be transcribed now, or None."""
        if (refusal := self._unreadiness()) is not None:
            return refusal
        if self._num_recordings >= self.config.max_recordings:
            return no_room("busy", f"{self.config.max_recordings} files are being transcribed")
        return self._budget_refusal(current_key.get())

    def _unreadiness(self) -> Refusal | None:
        if self.draining.is_set():
            return no_room("draining", "the service is stopping")
        if self._engine is None:
            return no_room("loading", "the model is loading")
        if isinstance(self._engine, Watched) and not self._engine.is_up:
            return no_room("restarting", "the engine is being restarted")
        return None

    @contextlib.asynccontextmanager
    async def session(
        self, audio_format: AudioFormat, settings: SessionSettings
    ) -> AsyncIterator[LiveSession]:
        """Open a session; it counts against the limit until the context is left.

        Raises:
            EngineBusy: no room for it now.
            InvalidRequest: the model does not know the language, or cannot translate.
        """
        if (refusal := self.refusal()) is not None:
            raise EngineBusy(refusal.message)
        assert self._metered is not None, "a service without an engine refuses"
        key = current_key.get()
        meter = SessionMeter(self.metrics, self._budget(key), time.monotonic())
        live = LiveSession(self._metered, audio_format, settings, meter)
        # counted before it opens: the opening awaits, and others ask for room meanwhile
        self._sessions[live] = key
        self._all_closed.clear()
        self.metrics.session_opened()
        try:
            async with live:
                yield live
        finally:
            del self._sessions[live]
            self.metrics.session_closed()
            self._note_closed()

    @contextlib.asynccontextmanager
    async def recording(
        self, blocks: AsyncIterable[Samples], settings: SessionSettings
    ) -> AsyncIterator[AsyncGenerator[Hypothesis, None]]:
        """Transcribe a whole recording, as `transcribe`; leaving the context stops it.

        Raises:
            EngineBusy: no room for it now.
        """
        if (refusal := self.recording_refusal()) is not None:
            raise EngineBusy(refusal.message)
        assert self._metered is not None, "a service without an engine refuses"
        self._num_recordings += 1
        self._all_closed.clear()
        try:
            async with (
                contextlib.aclosing(self._count(blocks, current_key.get())) as counted,
                contextlib.aclosing(
                    transcribe(
                        self._metered, counted, settings, num_streams=self._recording_streams
                    )
                ) as hypotheses,
            ):
                yield hypotheses
        finally:
            self._num_recordings -= 1
            self._note_closed()

    def _recording_streams(self) -> int:
        """Return how many windows of one file may be decoded at once."""
        # a window of a live session waits for what is being encoded, and decodes beside the rest
        return 1 if self._sessions else RECORDING_STREAMS

    async def _count(
        self, blocks: AsyncIterable[Samples], key: ApiKey
    ) -> AsyncGenerator[Samples, None]:
        """Pass blocks on; they count against the key's budget, which may end up in debt."""
        budget = self._budget(key)
        async for block in blocks:
            audio_s = len(block) / SAMPLE_RATE
            self.metrics.received(audio_s)
            if budget is not None:
                budget.take(audio_s, time.monotonic())
            yield block

    def _note_closed(self) -> None:
        if not self._sessions and not self._num_recordings:
            self._all_closed.set()

    async def drain(self) -> None:
        """Refuse new sessions, end the running ones' audio, and wait until they have delivered."""
        self.draining.set()
        stops = [asyncio.create_task(live.stop()) for live in self._sessions]
        try:
            await self._all_closed.wait()
        finally:
            for stop in stops:
                stop.cancel()
            await asyncio.gather(*stops, return_exceptions=True)

    async def _watch_keys(self) -> None:
        while True:
            await asyncio.sleep(key_file.POLL_S)
            self.keys.reload_if_changed()

    def _note_final(self, delay_s: float) -> None:
        self.capacity.record(delay_s, self.num_sessions, time.monotonic())

    async def _load(self) -> None:
        limit_s = self.config.engine_load_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                engine = await run_in_daemon(self._load_engine)
                await warm_up(engine)
                if self.config.calibrate:
                    self.capacity.calibrate(await measure_capacity(engine))
        except TimeoutError:
            self.failure = EngineError(
                f"the model was not ready within {limit_s:g} s (engine_load_timeout_s)"
            )
        except Exception as error:
            # the one place that decides is the composition root; it finds the error here
            self.failure = error
        else:
            self._engine = engine
            self._metered = MeteredEngine(engine, self.metrics, self._note_final)
            self.metrics.watch_engine(engine)
            info, limit = engine.info, self.capacity.limit
            logger.info("ready: %s, %s, %s; %d sessions", info.name, info.device, info.dtype, limit)
        self._settled.set()
