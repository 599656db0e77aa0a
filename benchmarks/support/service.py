"""A service for benchmarks to measure: `wordwire serve` in a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from dataclasses import dataclass

import psutil


@dataclass(frozen=True, slots=True)
class Served:
    """Where it listens, and which process it is."""

    url: str  # http://...
    process_id: int

    @property
    def ws(self) -> str:
        return self.url.replace("http", "ws", 1)

    def processes(self) -> list[psutil.Process]:
        """List the service's process and its engine's."""
        process = psutil.Process(self.process_id)
        return [process, *process.children(recursive=True)]

    def measure_memory(self) -> float:
        """Return the MiB that belong to these processes alone (USS)."""
        num_bytes = sum(each.memory_full_info().uss for each in self.processes())
        return round(float(num_bytes) / 2**20, 1)

    def count_files(self) -> int:
        """Count what these processes have open."""
        return sum(each.num_fds() for each in self.processes())


@contextlib.asynccontextmanager
async def serving(*options: str) -> AsyncIterator[Served]:
    """Serve on a free port until the context is left; its model is loaded when this is entered."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "wordwire", "serve", "--port=0", *options),
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stderr is not None
    line = ""
    while "Wordwire at" not in line:
        line = (await process.stderr.readline()).decode()
        if not line:
            raise SystemExit("the service did not start")
    echo = asyncio.create_task(_echo(process.stderr))
    served = Served(line.split()[-1], process.pid)
    try:
        while not await asyncio.to_thread(_is_ready, served.url):
            await asyncio.sleep(0.2)
        yield served
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()
        await echo


async def _echo(stream: asyncio.StreamReader) -> None:
    """Pass the log on, without the line for each session."""
    while line := await stream.readline():
        text = line.decode()
        if " opened" not in text and " closed" not in text:
            sys.stderr.write(text)


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError):
        return False
