"""How much does a big upload disturb those who speak, and how much memory does it take?

    python -m benchmarks.upload [--minutes 10]

Starts the service as a user would, plays one recording after the other to a live session at the
pace of real time, and asks for /healthz ten times a second; first alone, then while a long WAV file
is posted to /v1/audio/transcriptions.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import json
import time
import wave
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import httpx
import numpy as np
import websockets

from benchmarks.support.delays import percentile
from benchmarks.support.hardware import describe
from benchmarks.support.recordings import Recording, list_recordings
from benchmarks.support.service import Served, serving
from engine.api import SAMPLE_RATE, Samples

PACKET = SAMPLE_RATE // 10
PAUSE_S = 1.5  # of silence behind each recording, so that it becomes final


@dataclass
class Measured:
    """What was seen while something else went on."""

    final_s: list[float] = field(default_factory=list)  # from the end of speech
    health_s: list[float] = field(default_factory=list)


async def talk(service: Served, clips: list[Samples], into: Measured) -> None:
    """Speak for ever, and note how long after each clip's end its last final comes."""
    quiet = np.zeros(int(PAUSE_S * SAMPLE_RATE), np.float32)
    url = f"{service.ws}/v1/stream?encoding=pcm_f32le&sample_rate=16000&language=en"
    async with websockets.connect(url) as socket:
        started, position = time.monotonic(), 0
        ends: list[float] = []  # when each clip's last sample was sent

        async def listen() -> None:
            last = 0.0
            async for text in socket:
                message = json.loads(text)
                if message["type"] == "final" and message["text"] and ends:
                    now = time.monotonic()
                    end = max((e for e in ends if e <= now), default=0.0)
                    if end > last and now - end < 30:
                        into.final_s.append(now - end)
                        last = end

        listener = asyncio.create_task(listen())
        try:
            while True:
                for clip in clips:
                    for sound, is_speech in ((clip, True), (quiet, False)):
                        for first in range(0, len(sound), PACKET):
                            packet = sound[first : first + PACKET]
                            position += len(packet)
                            due = started + position / SAMPLE_RATE
                            await asyncio.sleep(max(0.0, due - time.monotonic()))
                            await socket.send(packet.tobytes())
                        if is_speech:
                            ends.append(time.monotonic())
        finally:
            listener.cancel()


async def ask_health(service: Served, into: Measured) -> None:
    async with httpx.AsyncClient(base_url=service.url) as http:
        while True:
            started = time.monotonic()
            (await http.get("/healthz")).raise_for_status()
            into.health_s.append(time.monotonic() - started)
            await asyncio.sleep(0.1)


async def post(service: Served, data: bytes) -> float:
    """Post a file; return the seconds until its text is there."""
    started = time.monotonic()
    async with httpx.AsyncClient(base_url=service.url, timeout=None) as http:
        answer = await http.post(
            "/v1/audio/transcriptions",
            data={"model": "whisper-1", "language": "en"},
            files={"file": ("talk.wav", data)},
        )
    answer.raise_for_status()
    assert answer.json()["text"]
    return time.monotonic() - started


def make_wav(minutes: float, source: Recording) -> bytes:
    samples = source.read(60 * minutes)
    samples = np.tile(samples, int(np.ceil(minutes * 60 * SAMPLE_RATE / len(samples))))
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(SAMPLE_RATE)
        part = samples[: int(minutes * 60 * SAMPLE_RATE)]
        writer.writeframes((part * 32767).astype("<i2").tobytes())
    return file.getvalue()


def memory_mb(service: Served) -> float:
    return float(sum(each.memory_info().rss for each in service.processes())) / 2**20


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="base")
    parser.add_argument("--minutes", type=float, default=10.0, help="of the uploaded audio")
    parser.add_argument("--alone-s", type=float, default=40.0, help="measured before the upload")
    arguments = parser.parse_args()
    recordings = list_recordings()
    clips = [r.read() for r in recordings if r.category == "read_en" and 3 < r.duration_s < 8][:12]
    data = make_wav(arguments.minutes, next(r for r in recordings if "lj001" in r.name))
    alone, beside = Measured(), Measured()
    async with serving("--model", arguments.model) as service:
        held_mb = peak_mb = memory_mb(service)
        async with measuring(service, clips, alone):
            await asyncio.sleep(arguments.alone_s)
        async with measuring(service, clips, beside):
            posting = asyncio.create_task(post(service, data))
            while not posting.done():
                peak_mb = max(peak_mb, memory_mb(service))
                await asyncio.sleep(0.2)
            upload_s = await posting
    rows = report({"alone": alone, "upload": beside})
    speed = arguments.minutes * 60 / upload_s
    print(f"{len(data) / 2**20:.0f} MB in {upload_s:.1f} s ({speed:.1f} x real time)", end="")
    print(f", memory {held_mb:.0f} -> {peak_mb:.0f} MB")
    print(
        json.dumps(
            {
                "upload": rows,
                "upload_s": round(upload_s, 1),
                "minutes": arguments.minutes,
                "held_mb": round(held_mb),
                "peak_mb": round(peak_mb),
                "model": arguments.model,
                **describe(),
            }
        )
    )


@contextlib.asynccontextmanager
async def measuring(service: Served, clips: list[Samples], into: Measured) -> AsyncIterator[None]:
    """Speak and ask for the health for as long as the context is open."""
    tasks = [
        asyncio.create_task(talk(service, clips, into)),
        asyncio.create_task(ask_health(service, into)),
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def report(measured: dict[str, Measured]) -> dict[str, dict[str, float]]:
    """Print the table, and return its rows."""
    rows: dict[str, dict[str, float]] = {}
    print("             final after speech, s     /healthz, ms")
    print("              p50    p95    n           p50    p99")
    for name, m in measured.items():
        rows[name] = r = {
            "final_p50": round(percentile(m.final_s, 50), 2),
            "final_p95": round(percentile(m.final_s, 95), 2),
            "finals": len(m.final_s),
            "health_p50_ms": round(1000 * percentile(m.health_s, 50), 1),
            "health_p99_ms": round(1000 * percentile(m.health_s, 99), 1),
        }
        print(
            f"{name:10}{r['final_p50']:7.2f}{r['final_p95']:7.2f}{r['finals']:5}"
            f"{r['health_p50_ms']:14.1f}{r['health_p99_ms']:7.1f}"
        )
    return rows


if __name__ == "__main__":
    asyncio.run(main())
