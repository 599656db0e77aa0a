"""A service in a process of its own, and what can be seen of it from outside."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil
from prometheus_client.parser import text_string_to_metric_families

ROOT = Path(__file__).parents[2]


@dataclass
class Victim:
    """A running service."""

    process: asyncio.subprocess.Process
    port: int
    log: list[str] = field(default_factory=list)

    @property
    def http(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def ws(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    @property
    def engine(self) -> psutil.Process:
        """The engine's process."""
        (child,) = psutil.Process(self.process.pid).children()
        return child

    @property
    def num_descriptors(self) -> int:
        return int(psutil.Process(self.process.pid).num_fds())

    @property
    def resident_bytes(self) -> int:
        return int(psutil.Process(self.process.pid).memory_info().rss)

    @property
    def tracebacks(self) -> str:
        """What the service logged from its first traceback on; empty is well."""
        first = next((n for n, line in enumerate(self.log) if "Traceback" in line), len(self.log))
        return "\n".join(self.log[max(0, first - 1) :]) if first < len(self.log) else ""

    async def is_ready(self) -> bool:
        """Return whether it takes sessions; its address is bound a moment before it listens."""
        async with httpx.AsyncClient() as client:
            try:
                return (await client.get(f"{self.http}/readyz")).status_code == 200
            except httpx.ConnectError:
                return False

    async def metrics(self) -> dict[str, float]:
        """Read all metrics: name, or name{label=value,...}, to value."""
        async with httpx.AsyncClient() as client:
            text = (await client.get(f"{self.http}/metrics")).text
        found = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels = ",".join(f"{name}={value}" for name, value in sample.labels.items())
                found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
        return found

    async def wait_open(self, num_sessions: int, limit_s: float = 30.0) -> None:
        """Return once a number of sessions are open."""
        async with asyncio.timeout(limit_s):
            while (await self.metrics())["wordwire_open_sessions"] != num_sessions:
                await asyncio.sleep(0.05)

    async def wait_idle(self) -> None:
        """Return when no session is open any more."""
        await self.wait_open(0)

    async def wait_up(self, num_restarts: int) -> None:
        """Return once the engine is up after a number of restarts; it may take long."""
        async with asyncio.timeout(60):
            while True:
                found = await self.metrics()
                has_restarted = found["wordwire_engine_restarts"] == num_restarts
                if has_restarted and found["wordwire_engine_up"]:
                    return
                await asyncio.sleep(0.05)

    async def wait_logged(self, words: str, limit_s: float = 30.0) -> None:
        """Return when a line with these words is in the log."""
        async with asyncio.timeout(limit_s):
            while not any(words in line for line in self.log):
                await asyncio.sleep(0.02)

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, float]:
        """Send a signal; return the exit code, and the seconds that it took."""
        start = time.monotonic()
        self.process.send_signal(number)
        code = await asyncio.wait_for(self.process.wait(), 30)
        return code, time.monotonic() - start


@contextlib.asynccontextmanager
async def victim(
    *options: str, command: Sequence[str] = ("-m", "tests.faults.serve")
) -> AsyncIterator[Victim]:
    """Start a service, and wait until it is ready; it is killed if it still runs at the end.

    Args:
        command: of Python, to which the options are given.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, "--port=0", *options, cwd=ROOT, stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    log: list[str] = []
    reading = asyncio.create_task(_keep(process.stderr, log))
    try:
        async with asyncio.timeout(90):
            while not (lines := [line for line in log if line.startswith("Wordwire at")]):
                assert process.returncode is None, log
                await asyncio.sleep(0.02)
            found = Victim(process, int(lines[0].rpartition(":")[2]), log)
            while not await found.is_ready():
                assert process.returncode is None, log
                await asyncio.sleep(0.05)
        yield found
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        await reading


async def _keep(stream: asyncio.StreamReader, log: list[str]) -> None:
    while line := await stream.readline():
        log.append(line.decode().rstrip())
