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

from engine.api import EngineBusy, Hypothesis, ModelInfo, StreamLost, StreamOptions, Window
from engine.checkpoint.locate import ModelError
from engine.process.owner import TICK_S, WorkerProcess
from engine.process.pending import Limits, PendingRequests
from engine.process.wire import (
    Cancel,
    Close,
    Counted,
    Decode,
    Decoded,
    DecodeFailed,
    Load,
    Loaded,
    LoadFailed,
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


class RemoteEngine:
    """Implements `engine.api.Engine` over a process that runs another one."""

    def __init__(self, recipe: Recipe, limits: Limits | None = None) -> None:
        """Prepare; `start` starts the process.

        Args:
            recipe: makes the engine in its process.
            limits: None for the defaults.
        """
        self._recipe = recipe
        self._limits = limits or Limits()
        self._info: ModelInfo | None = None
        self._failure: Exception | None = None  # of the first load
        self._statistics: Mapping[str, float] = {}
        self._num_restarts = 0
        self._ids = itertools.count()
        self._lock = threading.Lock()  # over the three below; held for moments
        self._pending = PendingRequests()
        self._generation = 0  # counts processes; streams of an older one are lost
        self._loaded: WorkerProcess | None = None  # takes orders; None: no process is up
        self._waited_s = 0.0  # for an answer, since the last one; or for the engine to be loaded
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
            outcome = await self._ask(request, order, stream.generation, self._limits.of(window))
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
                await self._ask(identity, Open(identity, options), generation, self._limits.hang_s)
            except StreamLost:
                self._tell(Close(identity), generation)  # where only its answer was lost
                await asyncio.sleep(POLL_S)
            except asyncio.CancelledError:
                self._tell(Close(identity), generation)
                raise
            else:
                return RemoteStream(self, identity, generation)
        raise EngineBusy("the engine is being started anew")

    async def _ask(
        self, identity: int, order: Order, generation: int, limit_s: float
    ) -> Hypothesis | None:
        data = pack(order)
        with self._lock:
            if self._loaded is None or generation != self._generation:
                raise StreamLost("the engine was started anew")
            future = self._pending.add(identity, limit_s)
            self._loaded.send(data)
        try:
            return await future
        finally:
            with self._lock:
                self._pending.pop(identity)

    def _tell(self, order: Order, generation: int) -> None:
        with self._lock:
            if self._loaded is not None and generation == self._generation:
                self._loaded.send(pack(order))

    # --- the thread that owns the process --------------------------------------------------------

    def _supervise(self) -> None:
        retry_s = RETRY_S
        try:
            while not self._is_closing.is_set():
                started_at = time.monotonic()
                reason = self._run_round()
                if not self._settled.is_set():
                    self._failure = reason
                if self._failure is not None or self._is_closing.is_set():
                    return
                self._num_restarts += 1
                retry_s = RETRY_S if time.monotonic() - started_at > STABLE_S else retry_s
                logger.error("%s; another process follows in %.1f s", reason, retry_s)
                self._is_closing.wait(retry_s)
                retry_s = min(2 * retry_s, MAX_RETRY_S)
        finally:
            self._settled.set()

    def _run_round(self) -> Exception:
        """Run a process until it is gone; return why it is."""
        try:
            return self._run_process()
        except Exception as error:
            # what this machine lacks for a moment, a file descriptor or memory, it has again later
            logger.exception("the engine's process could not be served")
            return RuntimeError(f"the engine's process could not be served: {error}")

    def _run_process(self) -> Exception:
        with WorkerProcess() as process:
            self._process, self._waited_s = process, 0.0
            try:
                process.send(pack(Load(self._recipe, logging.getLogger().getEffectiveLevel())))
                return self._read(process)
            finally:
                self._process = None
                with self._lock:
                    self._loaded = None
                    self._pending.lose_all()

    def _read(self, process: WorkerProcess) -> Exception:
        """Take what the process reports until it is gone, or has to go; return why."""
        while not self._is_closing.is_set():
            start = time.monotonic()
            reports = process.receive()
            if reports is None:
                return RuntimeError("the engine's process is gone")
            # a longer wait is the machine's: it stood still, and maybe the process did, too
            waited_s = min(time.monotonic() - start, 2 * TICK_S)
            self._waited_s += waited_s
            for report in reports:
                if isinstance(report, LoadFailed):
                    return report.fault.error
                self._take(report, process)
            self._give_up_overdue(waited_s)
            if self._loaded is None:
                if self._waited_s > self._limits.load_s:
                    return ModelError(f"the model was not loaded within {self._limits.load_s:g} s")
            elif not self._pending:
                self._waited_s = 0.0
            elif self._waited_s > self._limits.hang_s:
                return RuntimeError(f"the engine answered nothing for {self._limits.hang_s:g} s")
        return RuntimeError("the engine was closed")

    def _take(self, report: Report, process: WorkerProcess) -> None:
        match report:
            case Loaded(info):
                with self._lock:
                    self._generation += 1
                    self._info = info
                    self._loaded = process
                self._waited_s = 0.0
                self._settled.set()
            case Opened(stream, fault):
                self._answer(stream, None if fault is None else fault.error)
            case Decoded(request, hypothesis):
                self._answer(request, hypothesis)
            case DecodeFailed(request, fault):
                self._answer(request, fault.error)
            case Logged(level, name, text):
                logging.getLogger(name).log(level, "%s", text)
            case Counted(counters):
                self._statistics = counters

    def _answer(self, identity: int, outcome: Hypothesis | Exception | None) -> None:
        self._waited_s = 0.0
        with self._lock:
            pending = self._pending.pop(identity)
        if pending is not None:
            pending.resolve(outcome)

    def _give_up_overdue(self, waited_s: float) -> None:
        """Answer the requests that the process seems to have forgotten."""
        with self._lock:
            overdue = self._pending.take_overdue(waited_s)
            for request in overdue:
                if self._loaded is not None:
                    self._loaded.send(pack(Cancel(request.id)))
        for request in overdue:
            logger.error("the engine answered others, but not request %d", request.id)
            request.resolve(StreamLost("the engine did not answer in time"))


class RemoteStream:
    """Implements `engine.api.Stream`."""

    def __init__(self, engine: RemoteEngine, identity: int, generation: int) -> None:
        self.identity = identity
        self.generation = generation  # of the process that holds it
        self._engine = engine

    async def decode(self, window: Window) -> Hypothesis:
        return await self._engine.decode(self, window)


def start_engine(recipe: Recipe, limits: Limits | None = None) -> RemoteEngine:
    """Start an engine in its own process. Blocks until it is loaded; `close` the result.

    Raises:
        Exception: what the recipe raised.
    """
    engine = RemoteEngine(recipe, limits)
    engine.start()
    return engine
