"""An engine's own process: `python -m engine.process.worker FD` serves the owner at that socket.

It ends when the owner's end closes, so it never outlives the service.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import signal
import socket
import sys
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack

from engine.api import Engine, EngineError, Measured, Stream, StreamLost, Watched, Window
from engine.process.fault import (
    Fault,
    FaultKind,
    describe_load_error,
    describe_request_error,
    encodable,
)
from engine.process.wire import (
    ORDERS,
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
    Report,
    Unpacker,
    make_engine,
    pack,
)

logger = logging.getLogger("engine.process.worker")  # as `__main__` it is run

READ_BYTES = 2**20
PR_SET_PDEATHSIG = 1  # linux/prctl.h
COUNT_S = 1.0  # between two reports of the counters


class Worker:
    """Serves one owner."""

    def __init__(self, engine: Engine, writer: asyncio.StreamWriter) -> None:
        self._engine = engine
        self._writer = writer
        self._streams: dict[int, _OpenStream] = {}
        self._decodes: dict[int, asyncio.Task[None]] = {}  # by request
        self._chores: set[asyncio.Task[None]] = set()  # opening and closing streams
        self.engine_died = asyncio.Event()  # and only another process can have a new one

    def take(self, order: Order) -> None:
        """Carry an order out; answers come when they are ready."""
        match order:
            case Open(stream, options):
                try:
                    context = self._engine.stream(options)
                except Exception as error:
                    self._report(Opened(stream, _described(error)))
                    return
                self._streams[stream] = _OpenStream(context)
                self._start(self._open(stream, self._streams[stream]))
            case Decode(request, stream, window):
                task = asyncio.create_task(self._decode(request, stream, window))
                self._decodes[request] = task
                task.add_done_callback(lambda _: self._decodes.pop(request, None))
            case Cancel(request):
                if request in self._decodes:
                    self._decodes[request].cancel()
            case Close(stream):
                if stream in self._streams:
                    self._start(self._streams.pop(stream).close())
            case Load():
                raise AssertionError("an engine is loaded once")

    async def count(self) -> None:
        """Report the engine's counters for as long as it is not cancelled."""
        while isinstance(self._engine, Measured):
            await asyncio.sleep(COUNT_S)
            try:
                self._report(Counted(dict(self._engine.statistics())))
            except Exception:
                logger.exception("the engine's counters could not be read")

    async def close(self) -> None:
        """Abort all decodes and close all streams."""
        for task in self._decodes.values():
            task.cancel()
        await asyncio.gather(*self._decodes.values(), *self._chores, return_exceptions=True)
        for stream in self._streams.values():
            await stream.close()

    def _start(self, chore: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(chore)
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)

    async def _open(self, stream: int, opened: _OpenStream) -> None:
        try:
            await opened.open()
        except Exception as error:
            self._streams.pop(stream, None)
            self._report(Opened(stream, _described(error)))
        else:
            self._report(Opened(stream))

    async def _decode(self, request: int, stream: int, window: Window) -> None:
        try:
            if stream not in self._streams:
                raise StreamLost("the stream is not open")
            hypothesis = await self._streams[stream].stream.decode(window)
            self._report(Decoded(request, hypothesis))
        except Exception as error:
            self._report(DecodeFailed(request, _described(error)))
            if isinstance(self._engine, Watched) and not self._engine.is_up:
                self.engine_died.set()

    def _report(self, report: Report) -> None:
        self._writer.write(pack(report))


class _OpenStream:
    """A stream and what closes it. Its owner may close it before it is open."""

    def __init__(self, context: AbstractAsyncContextManager[Stream]) -> None:
        self._context = context
        self._exit = AsyncExitStack()
        self._stream: Stream | None = None
        self._is_closed = False
        self._changing = asyncio.Lock()

    async def open(self) -> None:
        async with self._changing:
            if not self._is_closed:
                self._stream = await self._exit.enter_async_context(self._context)

    @property
    def stream(self) -> Stream:
        if self._stream is None:
            raise StreamLost("the stream is not open")
        return self._stream

    async def close(self) -> None:
        async with self._changing:
            self._is_closed, self._stream = True, None
            await self._exit.aclose()


def _described(error: Exception) -> Fault:
    """Make an error fit to travel; what is our bug is logged here, where its traceback is."""
    if not isinstance(error, EngineError):
        logger.error("a request failed", exc_info=error)
    return describe_request_error(error)


class _OwnerHandler(logging.Handler):
    """Sends log lines to the owner, who has the handlers."""

    def __init__(self, loop: asyncio.AbstractEventLoop, writer: asyncio.StreamWriter) -> None:
        super().__init__()
        self._loop = loop
        self._writer = writer

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = encodable(self.format(record))
            data = pack(Logged(record.levelno, record.name, text))
        except Exception:
            self.handleError(record)  # whoever logs goes on
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._writer.write, data)


async def serve(connection: socket.socket) -> None:
    """Load an engine and serve it until the owner goes away."""
    reader, writer = await asyncio.open_connection(sock=connection)
    unpacker = Unpacker(ORDERS)
    orders: list[Order] = []
    while not orders:
        data = await reader.read(READ_BYTES)
        if not data:
            return
        orders += unpacker.receive(data)
    load = orders.pop(0)
    assert isinstance(load, Load), load
    handler = _OwnerHandler(asyncio.get_running_loop(), writer)
    logging.basicConfig(level=load.log_level, format="%(message)s", handlers=[handler])
    try:
        engine = await asyncio.to_thread(make_engine, load.recipe)
    except Exception as error:
        fault = describe_load_error(error)
        if fault.kind is FaultKind.BUG:
            logger.error("the engine could not be made", exc_info=error)
        writer.write(pack(LoadFailed(fault)))
        await writer.drain()
        return
    writer.write(pack(Loaded(engine.info)))
    worker = Worker(engine, writer)
    tasks = [
        asyncio.create_task(worker.count()),
        asyncio.create_task(_take_orders(worker, orders, reader, unpacker)),
        asyncio.create_task(worker.engine_died.wait()),
    ]
    try:
        await asyncio.wait(tasks[1:], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await worker.close()
        if (close := getattr(engine, "close", None)) is not None:
            close()
        writer.close()


async def _take_orders(
    worker: Worker, orders: list[Order], reader: asyncio.StreamReader, unpacker: Unpacker[Order]
) -> None:
    """Carry out the orders that came while the engine was loaded, then those that follow."""
    try:
        for order in orders:
            worker.take(order)
        while data := await reader.read(READ_BYTES):
            for order in unpacker.receive(data):
                worker.take(order)
    except ConnectionError:
        logger.debug("the owner is gone")
    except Exception:
        # the process ends, and its owner starts another one
        logger.exception("the owner's orders could not be taken")


def main() -> None:
    """Serve the owner at the socket that the command line names."""
    # the owner decides when to stop; a signal to the whole group must not come before the drain
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if sys.platform == "linux":
        # an owner that was killed leaves nobody behind, even where this process hangs
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        connection.setblocking(False)
        asyncio.run(serve(connection))


if __name__ == "__main__":
    main()
