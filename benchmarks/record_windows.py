"""Which windows do live streams ask for, and how much of each is decoded?

Plays long recordings to sessions at the pace of real time, with base, and writes a table of all
windows: what `benchmarks.cuda_live` draws from.

    python -m benchmarks.record_windows > benchmarks/live_windows.json
"""

from __future__ import annotations

import argparse
import asyncio
import json

from benchmarks.recordings import list_recordings
from benchmarks.simulation import play
from engine.api import SAMPLE_RATE
from engine.config import EngineConfig
from engine.local import load_engine
from engine.request import Request
from streamer.settings import SessionSettings

COST_S = 0.9  # so that a stream asks for about one window a second, as the load that is played does


async def main(seconds: float) -> None:
    engine = load_engine(EngineConfig())
    table: list[list[float | int]] = []
    settle = engine._loop._settle

    def record(request: Request) -> bool:
        sequence, length = request.sequence, len(request.window.audio)
        is_answered = settle(request)
        if is_answered:
            table.append(
                [
                    round(length / SAMPLE_RATE, 2),
                    int(request.window.is_final),
                    len(sequence.prefix),
                    len(sequence.tokens),
                    sequence.num_drafted,
                    sequence.num_steps,
                ]
            )
        return is_answered

    engine._loop._settle = record
    duration_s = 0.0
    try:
        for recording in list_recordings():
            if recording.category == "longform_en":
                samples = recording.read(seconds)
                duration_s += len(samples) / SAMPLE_RATE
                await play(
                    engine, samples, SessionSettings(language="en"), cost=lambda _window: COST_S
                )
    finally:
        engine.close()
    columns = ["seconds", "is_final", "prefix", "tokens", "drafted", "steps"]
    print(json.dumps({"sound_s": round(duration_s, 1), "columns": columns, "windows": table}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0, help="of each recording")
    asyncio.run(main(parser.parse_args().seconds))
