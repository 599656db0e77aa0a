"""Which windows do live streams ask for, and how much of each is decoded?

Plays long recordings to sessions at the pace of real time, with base, and writes a table of all
windows: what `benchmarks.cuda.live` draws from. Audio comes a second at a time, and a stream
asks for about two windows a second. A service that takes long to answer keeps its windows shorter:
that is a table of its own.

    python -m benchmarks.record_windows > benchmarks/support/live_windows.json
    python -m benchmarks.record_windows --turn 0.45 > benchmarks/support/live_windows_rushed.json
"""

from __future__ import annotations

import argparse
import asyncio
import json

from benchmarks.support.recordings import list_recordings
from benchmarks.support.simulation import play
from engine.api import SAMPLE_RATE
from engine.batching.request import Request
from engine.config import EngineConfig
from engine.local import load_engine
from streamer.transcription.settings import SessionSettings


async def main(seconds: float, turn_s: float) -> None:
    engine = load_engine(EngineConfig())
    table: list[list[float | int]] = []
    finish = engine._loop._finish

    def record(request: Request) -> bool:
        sequence, length = request.sequence, len(request.window.audio)
        is_answered = finish(request)
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

    engine._loop._finish = record
    duration_s = 0.0
    try:
        for recording in list_recordings():
            if recording.category == "longform_en":
                samples = recording.read(seconds)
                duration_s += len(samples) / SAMPLE_RATE
                settings = SessionSettings(language="en")
                await play(
                    engine, samples, settings, packet=SAMPLE_RATE, cost=lambda _window: turn_s
                )
    finally:
        engine.close()
    columns = ["seconds", "is_final", "prefix", "tokens", "drafted", "steps"]
    about = {"audio_s": round(duration_s, 1), "turn_s": turn_s, "columns": columns}
    print(json.dumps({**about, "windows": table}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0, help="of each recording")
    parser.add_argument("--turn", type=float, default=0.2, help="seconds until a window is decoded")
    arguments = parser.parse_args()
    asyncio.run(main(arguments.seconds, arguments.turn))
