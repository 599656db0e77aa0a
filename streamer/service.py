"""What all routes share: the engine, once it is loaded, and the sessions that it serves.

Routes ask here whether there is room, and open their sessions here, so that limits, counts and the
shutdown hold for every protocol alike.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import TypeVar, cast

import numpy as np

from engine.api import (
    SAMPLE_RATE,
    Engine,
    EngineBusy,
    Hypothesis,
    ModelInfo,
    Samples,
    StreamOptions,
    Window,
)
from streamer import offline
from streamer.audio import AudioFormat
from streamer.config import ServerConfig
from streamer.live import LiveSession
from streamer.settings import SessionSettings

logger = logging.getLogger(__name__)

T = TypeVar("T")

RETRY_AFTER_S = 5.0  # when a client that found no room may ask again
MAX_RECORDINGS = 16  # whole files transcribed at once; each holds a thread and a minute of sound


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request or a socket is turned away before it takes any resource."""

    status: HTTPStatus
    code: str  # a stable name for programs
    message: str
    retry_after_s: float | None = None

    @property
    def body(self) -> dict[str, object]:
        return {"error": {"code": self.code, "message": self.message}}

    @property
    def headers(self) -> dict[str, str]:
        if self.retry_after_s is None:
            return {}
        return {"Retry-After": str(max(1, round(self.retry_after_s)))}


class Service:
    """One running service. `run` loads the engine; the routes use the rest."""

    def __init__(self, config: ServerConfig, load_engine: Callable[[], Engine]) -> None:
        self.config = config
        # why the engine could not be loaded; the service is of no use from then on
        self.failure: Exception | None = None
        self._load_engine = load_engine
        self._engine: Engine | None = None
        self._settled = asyncio.Event()  # loaded, or failed to
        self._sessions: set[LiveSession] = set()
        self._num_recordings = 0
        self._all_closed = asyncio.Event()
        self._all_closed.set()
        # set once, when the service is asked to stop: no new sessions, running ones finish
        self.draining = asyncio.Event()

    @contextlib.asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Load and warm up the engine in the background for as long as the context is open."""
        loading = asyncio.create_task(self._load())
        try:
            yield
        finally:
            loading.cancel()
            await asyncio.gather(loading, return_exceptions=True)

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
        return len(self._sessions)

    def refusal(self) -> Refusal | None:
        """Say why no session can be opened now, or None where one can."""
        if (refusal := self._unreadiness()) is not None:
            return refusal
        if len(self._sessions) >= self.config.max_sessions:
            return Refusal(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "busy",
                f"all {self.config.max_sessions} sessions are taken",
                RETRY_AFTER_S,
            )
        return None

    def recording_refusal(self) -> Refusal | None:
        """Say why no whole file can be transcribed now, or None where one can."""
        if (refusal := self._unreadiness()) is not None:
            return refusal
        if self._num_recordings >= MAX_RECORDINGS:
            return Refusal(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "busy",
                f"{MAX_RECORDINGS} files are being transcribed",
                RETRY_AFTER_S,
            )
        return None

    def _unreadiness(self) -> Refusal | None:
        if self.draining.is_set():
            return Refusal(
                HTTPStatus.SERVICE_UNAVAILABLE, "draining", "the service is stopping", RETRY_AFTER_S
            )
        if self._engine is None:
            return Refusal(
                HTTPStatus.SERVICE_UNAVAILABLE, "loading", "the model is loading", RETRY_AFTER_S
            )
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
        assert self._engine is not None, "a service without an engine refuses"
        live = LiveSession(self._engine, audio_format, settings)
        # counted before it opens: the opening awaits, and others ask for room meanwhile
        self._sessions.add(live)
        self._all_closed.clear()
        try:
            async with live:
                yield live
        finally:
            self._sessions.discard(live)
            self._note_closed()

    @contextlib.asynccontextmanager
    async def recording(
        self, blocks: AsyncIterable[Samples], settings: SessionSettings
    ) -> AsyncIterator[AsyncGenerator[Hypothesis, None]]:
        """Transcribe a whole recording, as `offline.transcribe`; leaving the context stops it.

        Raises:
            EngineBusy: no room for it now.
        """
        if (refusal := self.recording_refusal()) is not None:
            raise EngineBusy(refusal.message)
        assert self._engine is not None, "a service without an engine refuses"
        self._num_recordings += 1
        self._all_closed.clear()
        try:
            async with contextlib.aclosing(
                offline.transcribe(self._engine, blocks, settings)
            ) as hypotheses:
                yield hypotheses
        finally:
            self._num_recordings -= 1
            self._note_closed()

    def _note_closed(self) -> None:
        if not self._sessions and not self._num_recordings:
            self._all_closed.set()

    async def drain(self) -> None:
        """Refuse new sessions, and wait until the running ones have delivered and closed."""
        self.draining.set()
        await self._all_closed.wait()

    async def _load(self) -> None:
        try:
            engine = await _run_in_daemon(self._load_engine)
            await _warm_up(engine)
        except Exception as error:
            # the one place that decides is the composition root; it finds the error here
            self.failure = error
        else:
            self._engine = engine
            logger.info("ready: %s", engine.info)
        self._settled.set()


async def _run_in_daemon(function: Callable[[], T]) -> T:
    """Run in a thread that does not keep the process alive: loading may take minutes."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.done():  # nobody waits any more
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(cast("T", result))

    def run() -> None:
        result, error = None, None
        try:
            result = function()
        except BaseException as raised:
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed: the process ends
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, name="load-engine", daemon=True).start()
    return await future


async def _warm_up(engine: Engine) -> None:
    """Decode once each way, so that the first caller does not wait for kernels and pools."""
    audio = np.random.default_rng(0).normal(0, 1e-3, 3 * SAMPLE_RATE).astype(np.float32)
    options = StreamOptions(language=engine.info.languages[0], temperatures=(0.0,))
    async with engine.stream(options) as stream:
        await stream.decode(Window(start=0, audio=audio))
        await stream.decode(Window(start=0, audio=audio, is_final=True, word_times=True))
