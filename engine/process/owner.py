"""The process that runs an engine, seen from its owner: started, fed with orders, read, ended."""

from __future__ import annotations

import contextlib
import logging
import queue
import socket
import subprocess
import sys
import threading
from typing import Self

from engine.process.wire import REPORTS, Report, Unpacker

logger = logging.getLogger(__name__)

READ_BYTES = 2**20
BUFFER_BYTES = 4 * 2**20  # of the socket: some windows, so that writing seldom waits
TICK_S = 0.5  # that `receive` waits
EXIT_S = 0.3  # that a process gets to end by itself; it has nothing to save


class WorkerProcess:
    """Runs `engine.process.worker`; a context manager, which ends the process."""

    def __init__(self) -> None:
        """Start the process.

        Raises:
            OSError, RuntimeError: this machine has no room for another process or thread.
        """
        self._unpacker = Unpacker(REPORTS)
        self._outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._write, name="engine writer", daemon=True)
        with contextlib.ExitStack() as undo:
            ours, theirs = socket.socketpair()
            self._socket = undo.enter_context(ours)
            with theirs:
                for end in (ours, theirs):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
                ours.settimeout(TICK_S)
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "engine.process.worker", str(theirs.fileno())],
                    pass_fds=(theirs.fileno(),),
                    stdin=subprocess.DEVNULL,
                )
            undo.callback(self._process.wait)
            undo.callback(self._process.kill)
            self._writer.start()
            undo.pop_all()  # it runs: `__exit__` ends it

    @property
    def id(self) -> int:
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Let the process end by itself, or kill it."""
        self.finish()
        try:
            self._process.wait(EXIT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()
        # a descendant of the process may hold its end open, and then a write would wait for ever
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._writer.join()
        self._socket.close()

    def send(self, order: bytes) -> None:
        """Have a packed order sent; never waits."""
        self._outbox.put(order)

    def finish(self) -> None:
        """Tell the process, behind all orders, that its owner is gone."""
        self._outbox.put(None)

    def kill(self) -> None:
        self._process.kill()

    def receive(self) -> list[Report] | None:
        """Wait a moment for reports; None if the process is gone."""
        try:
            data = self._socket.recv(READ_BYTES)
            return list(self._unpacker.receive(data)) if data else None
        except TimeoutError:
            return []
        except OSError as error:
            logger.debug("the engine's socket broke: %s", error)
            return None
        except ValueError as error:
            logger.error("the engine's process cannot be understood: %s", error)
            return None

    def _write(self) -> None:
        try:
            while (data := self._outbox.get()) is not None:
                view = memoryview(data)
                while view:
                    try:
                        view = view[self._socket.send(view) :]
                    except TimeoutError:
                        continue
            self._socket.shutdown(socket.SHUT_WR)
        except OSError as error:
            logger.debug("cannot write to the engine: %s", error)
