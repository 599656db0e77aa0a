"""An engine in a process of its own: started, watched, and started anew when it dies or hangs.

What is lost with the process ends with StreamLost, and its callers decode again from their own
buffers. A thread owns the process; the event loop never waits for it.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from engine.api import EngineBusy, Hypothesis, ModelInfo, StreamLost, StreamOptions, Window
from engine.process.owner import TICK_S, WorkerProcess
from engine.process.wire import (
    Cancel,
    Close,
    Counted,
    Decode,
    Decoded,
    Failed,
    Load,
    Loaded,
    Logged,
    Open,
    Opened,
    Order,
    Recipe,
    Report,
    pack,
)

logger = logging.getLogger(__name__)

RETRY_S = 0.5  # before a process that died at once is started again; doubled each time
MAX_RETRY_S = 30.0
STABLE_S = 60.0  # a process that lived this long died of something new
POLL_S = 0.05  # between two tries to open a stream while no process is up
WAIT_UP_S = 120.0  # that a stream waits for the process to be back


@dataclass(slots=True)
class _Pending:
    """A request on its way, and the loop that waits for it."""

    future: asyncio.Future[Hypothesis | None]
    loop: asyncio.AbstractEventLoop


class RemoteEngine:
    """Implements `engine.api.Engine` over a process that runs another one."""

    def __init__(self, recipe: Recipe, *, hang_s: float = 30.0) -> None:
        """Prepare; `start` starts the process.

        Args:
            recipe: makes the engine in its process.
            hang_s: a process that answers nothing for so long, with requests waiting, is killed.
        """
        self._recipe = recipe
        self._hang_s = hang_s
        self._info: ModelInfo | None = None
        self._failure: Exception | None = None  # of the first load
        self._statistics: Mapping[str, float] = {}
        self._num_restarts = 0
        self._ids = itertools.count()
        self._lock = threading.Lock()  # over the three below; held for moments
        self._pending: dict[int, _Pending] = {}  # opens and decodes that wait, oldest first
        self._generation = 0  # counts processes; streams of an older one are lost
        self._loaded: WorkerProcess | None = None  # takes orders; None: no process is up
        self._waited_s = 0.0  # for an answer, since the last one
        self._settled = threading.Event()  # the first load is over
        self._is_closing = threading.Event()
        self._process: WorkerProcess | None = None  # that runs, maybe not loaded yet
        self._thread = threading.Thread(target=self._supervise, name="engine process", daemon=True)

    @property
    def info(self) -> ModelInfo:
        assert self._info is not None, "started"
        return self._info

    @property
    def is_up(self) -> bool:
        return self._loaded is not None

    @property
    def num_restarts(self) -> int:
        return self._num_restarts

    @property
    def process_id(self) -> int | None:
        """Of the process that runs now."""
        return self._process.id if self._process is not None else None

    def statistics(self) -> Mapping[str, float]:
        return self._statistics

    def start(self) -> None:
        """Start the process and wait until its engine is loaded.

        Raises:
            Exception: what the recipe raised.
        """
        self._thread.start()
        self._settled.wait()
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """End the process. Requests that wait end with StreamLost."""
        self._is_closing.set()
        with self._lock:
            if self._loaded is not None:
                self._loaded.finish()
        if self._thread.is_alive():
            self._thread.join()

    @asynccontextmanager
    async def stream(self, options: StreamOptions) -> AsyncIterator[RemoteStream]:
        stream = await self._open(options)
        try:
            yield stream
        finally:
            self._tell(Close(stream.identity), stream.generation)

    async def decode(self, stream: RemoteStream, window: Window) -> Hypothesis:
        """Decode a window of a stream; cancelling it aborts the decode there."""
        request = next(self._ids)
        order = Decode(request, stream.identity, window)
        try:
            outcome = await self._ask(request, order, stream.generation)
        except asyncio.CancelledError:
            self._tell(Cancel(request), stream.generation)
            raise
        assert outcome is not None, "a decode is answered with a text"
        return outcome

    async def _open(self, options: StreamOptions) -> RemoteStream:
        deadline = time.monotonic() + WAIT_UP_S
        while not self._is_closing.is_set() and time.monotonic() < deadline:
            identity, generation = next(self._ids), self._generation
            try:
                await self._ask(identity, Open(identity, options), generation)
            except StreamLost:
                await asyncio.sleep(POLL_S)
            except asyncio.CancelledError:
                self._tell(Close(identity), generation)
                raise
            else:
                return RemoteStream(self, identity, generation)
        raise EngineBusy("the engine is being started anew")

    async def _ask(self, identity: int, order: Order, generation: int) -> Hypothesis | None:
        loop = asyncio.get_running_loop()
        pending = _Pending(loop.create_future(), loop)
        data = pack(order)
        with self._lock:
            if self._loaded is None or generation != self._generation:
                raise StreamLost("the engine was started anew")
            self._pending[identity] = pending
            self._loaded.send(data)
        try:
            return await pending.future
        finally:
            with self._lock:
                self._pending.pop(identity, None)

    def _tell(self, order: Order, generation: int) -> None:
        with self._lock:
            if self._loaded is not None and generation == self._generation:
                self._loaded.send(pack(order))

    # --- the thread that owns the process --------------------------------------------------------

    def _supervise(self) -> None:
        retry_s = RETRY_S
        while not self._is_closing.is_set():
            started_at = time.monotonic()
            self._run_process()
            if not self._settled.is_set():
                self._failure = self._failure or RuntimeError("the engine's process ended at once")
                self._settled.set()
            if self._failure is not None or self._is_closing.is_set():
                return
            self._num_restarts += 1
            retry_s = RETRY_S if time.monotonic() - started_at > STABLE_S else retry_s
            logger.error("the engine's process is gone; a new one follows in %.1f s", retry_s)
            self._is_closing.wait(retry_s)
            retry_s = min(2 * retry_s, MAX_RETRY_S)

    def _run_process(self) -> None:
        """Start a process and serve it until it is gone."""
        with WorkerProcess() as process:
            self._process = process
            process.send(pack(Load(self._recipe, logging.getLogger().getEffectiveLevel())))
            try:
                if self._read(process):
                    logger.error("the engine answers nothing for %.1f s; killed", self._hang_s)
                    process.kill()
            finally:
                self._lose_all()
        self._process = None

    def _read(self, process: WorkerProcess) -> bool:
        """Take what the process reports until it is gone or hangs; tell whether it hangs."""
        while not self._is_closing.is_set():
            start = time.monotonic()
            reports = process.receive()
            if reports is None:
                return False
            # a longer wait is the machine's: it stood still, and maybe the process did, too
            self._waited_s += min(time.monotonic() - start, 2 * TICK_S)
            for report in reports:
                self._take(report, process)
            if self._loaded is None or not self._pending:
                self._waited_s = 0.0
            if self._waited_s > self._hang_s:
                return True
        return False

    def _take(self, report: Report, process: WorkerProcess) -> None:
        match report:
            case Loaded(info):
                with self._lock:
                    self._generation += 1
                    self._info = info
                    self._loaded = process
                self._settled.set()
            case Failed(error):
                logger.error("the engine could not be loaded: %s", error)
                if not self._settled.is_set():
                    self._failure = error
            case Opened(stream, error):
                self._answer(stream, error)
            case Decoded(request, outcome):
                self._answer(request, outcome)
            case Logged(level, name, text):
                logging.getLogger(name).log(level, "%s", text)
            case Counted(counters):
                self._statistics = counters

    def _answer(self, identity: int, outcome: Hypothesis | Exception | None) -> None:
        self._waited_s = 0.0
        with self._lock:
            pending = self._pending.pop(identity, None)
        if pending is not None:
            _resolve(pending, outcome)

    def _lose_all(self) -> None:
        with self._lock:
            self._loaded = None
            lost, self._pending = self._pending, {}
        for pending in lost.values():
            _resolve(pending, StreamLost("the engine's process is gone"))


class RemoteStream:
    """Implements `engine.api.Stream`."""

    def __init__(self, engine: RemoteEngine, identity: int, generation: int) -> None:
        self.identity = identity
        self.generation = generation  # of the process that holds it
        self._engine = engine

    async def decode(self, window: Window) -> Hypothesis:
        return await self._engine.decode(self, window)


def start_engine(recipe: Recipe, *, hang_s: float = 30.0) -> RemoteEngine:
    """Start an engine in its own process. Blocks until it is loaded; `close` the result.

    Raises:
        Exception: what the recipe raised.
    """
    engine = RemoteEngine(recipe, hang_s=hang_s)
    engine.start()
    return engine


def _resolve(pending: _Pending, outcome: Hypothesis | Exception | None) -> None:
    def settle() -> None:
        if pending.future.done():  # cancelled meanwhile
            return
        if isinstance(outcome, Exception):
            pending.future.set_exception(outcome)
        else:
            pending.future.set_result(outcome)

    try:
        pending.loop.call_soon_threadsafe(settle)
    except RuntimeError:
        logger.debug("an answer came after its loop was closed")
