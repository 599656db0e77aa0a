"""How long does it take from the start of the process to the first caption?

    python -m benchmarks.startup [--model base] [--runs 3]

Starts `wordwire serve` in a process of its own, asks it for its health until it answers, connects
as soon as it is ready, and plays a recording at the pace of real time until text appears.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import signal
import statistics
import sys
import time
import urllib.error
import urllib.request
from dataclasses import asdict, dataclass

from benchmarks.support.hardware import describe
from benchmarks.support.recordings import list_recordings
from clients.audio_source import BLOCK_S, open_audio
from clients.client import connect
from streamer.protocol import Final, Partial, Start

POLL_S = 0.02
LIMIT_S = 120.0


@dataclass(frozen=True, slots=True)
class Timing:
    """One start; seconds from the start of the process."""

    healthy_s: float  # /healthz answers
    ready_s: float  # /readyz says so: the model is loaded and warm
    caption_s: float  # the first text arrives
    speech_s: float  # of that, audio that was played before there was text
    stop_s: float  # from SIGTERM to the end of the process


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="base")
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    path = next(str(r.path) for r in list_recordings() if r.path.name == "jfk.wav")
    starts = [asyncio.run(measure(arguments.model, path)) for _ in range(arguments.runs)]
    rows = {
        name: [round(asdict(start)[name], 2) for start in starts]
        for name in ("healthy_s", "ready_s", "caption_s", "speech_s", "stop_s")
    }
    print(f"{'':12} {'median':>8} {'worst':>8}")
    for name, values in rows.items():
        print(f"{name:12} {statistics.median(values):8.2f} {max(values):8.2f}")
    print(json.dumps({"benchmark": "startup", "model": arguments.model, **rows, **describe()}))


async def measure(model: str, path: str) -> Timing:
    """Start a service, caption a recording's beginning, and stop it."""
    began = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "wordwire", "serve", "--port", "0", "--model", model),
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        line = (await process.stderr.readline()).decode()
        found = re.search(r":(\d+)\s*$", line)
        assert found, line
        url = f"http://127.0.0.1:{found[1]}"
        draining = asyncio.create_task(process.stderr.read())
        healthy_s = await _wait(f"{url}/healthz") - began
        ready_s = await _wait(f"{url}/readyz") - began
        playing = time.monotonic()
        await _first_caption(url, path)
        shown = time.monotonic()
        process.send_signal(signal.SIGTERM)
        code = await process.wait()
        stopped = time.monotonic()
        await draining
        assert code == 0, code
        return Timing(healthy_s, ready_s, shown - began, shown - playing, stopped - shown)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _wait(url: str) -> float:
    """Return the moment when an address answers with success."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        if await asyncio.to_thread(_answers, url):
            return time.monotonic()
        await asyncio.sleep(POLL_S)
    raise TimeoutError(f"{url} did not answer within {LIMIT_S:g} s")


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=LIMIT_S):
            return True
    except urllib.error.URLError:
        return False


async def _first_caption(url: str, path: str) -> None:
    with open_audio(path, split_channels=False) as audio:
        async with connect(url, Start(sample_rate=audio.sample_rate)) as stream:

            async def play() -> None:
                for block in audio.blocks:
                    await asyncio.sleep(BLOCK_S)
                    await stream.send(block)
                await stream.end()

            playing = asyncio.create_task(play())
            try:
                async for message in stream:
                    if isinstance(message, Partial) and (message.settled + message.volatile):
                        return
                    if isinstance(message, Final) and message.text:
                        return
            finally:
                playing.cancel()
                await asyncio.gather(playing, return_exceptions=True)
    raise AssertionError(f"no caption for {path}")


if __name__ == "__main__":
    main()
