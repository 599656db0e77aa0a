"""How fast are whole recordings written, against faster-whisper: same model, cores and audio?

    python -m benchmarks.whole_file [--model base] [--seconds 240]

The beginning of each long English recording goes through `streamer.recording.transcribe` as a file
would, and through faster-whisper: its sequential transcription and its batched pipeline, in int8
and float32, greedily, all in one process and one after another. Word errors are those against the
whole text cut where the beginning ends in the best of all transcripts, so they compare, and do not
measure.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from collections.abc import Callable

import faster_whisper

from benchmarks.support.faster_whisper import lay_out
from benchmarks.support.hardware import describe
from benchmarks.support.recordings import Recording, blocks_of, list_recordings
from benchmarks.support.scoring import Errors, compare, normalize
from engine.api import SAMPLE_RATE, Samples
from engine.config import EngineConfig
from engine.local import load_engine
from streamer.recording.transcribe import transcribe
from streamer.transcription.settings import SessionSettings


def transcribe_with_engine(
    dtype: str, tail: str, model: str, num_streams: int
) -> Callable[[Samples], str]:
    engine = load_engine(EngineConfig(model=model, dtype=dtype, encoder_tail=tail))

    async def run(audio: Samples) -> str:
        settings = SessionSettings(language="en")
        texts = transcribe(engine, blocks_of(audio), settings, num_streams=num_streams)
        return "".join([hypothesis.text async for hypothesis in texts])

    return lambda audio: asyncio.run(run(audio))


def transcribe_with_peer(
    folder: str, dtype: str, num_threads: int, batch_size: int | None
) -> Callable[[Samples], str]:
    model = faster_whisper.WhisperModel(
        folder, device="cpu", compute_type=dtype, cpu_threads=num_threads
    )
    pipeline = faster_whisper.BatchedInferencePipeline(model) if batch_size else None

    def run(audio: Samples) -> str:
        if pipeline is not None:
            segments, _ = pipeline.transcribe(
                audio, language="en", beam_size=1, batch_size=batch_size
            )
        else:
            segments, _ = model.transcribe(audio, language="en", beam_size=1)
        return "".join(segment.text for segment in segments)

    return run


def score(recording: Recording, text: str, is_whole: bool) -> Errors:
    """Count errors; of a beginning, against as much of the truth as fits it best."""
    words = normalize(text, "en")
    truth = normalize(recording.text, "en")
    if is_whole:
        return compare(truth, words)
    lengths = range(max(len(words) - 12, 1), len(words) + 13)
    return min((compare(truth[:n], words) for n in lengths), key=lambda errors: errors.num_wrong)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="base")
    parser.add_argument("--seconds", type=float, default=240.0, help="of each recording")
    parser.add_argument("--streams", type=int, default=4, help="windows decoded side by side")
    parser.add_argument("--batch", type=int, default=8, help="of the peer's pipeline")
    parser.add_argument("--dtypes", nargs="*", default=["int8", "float32"])
    arguments = parser.parse_args()
    num_threads = len(os.sched_getaffinity(0))
    recordings = [r for r in list_recordings() if r.category == "longform_en"]
    sounds = [recording.read(arguments.seconds) for recording in recordings]
    num_seconds = sum(len(sound) for sound in sounds) / SAMPLE_RATE
    rows = {}
    print(f"{num_seconds:.0f} s of {len(recordings)} recordings, {num_threads} threads")
    print(f"{'':28}{'seconds':>9}{'x real time':>13}{'word error %':>14}")
    with lay_out(arguments.model) as folder:
        for dtype in arguments.dtypes:
            makers: dict[str, Callable[[], Callable[[Samples], str]]] = {
                f"wordwire {dtype}": lambda d=dtype: transcribe_with_engine(
                    d, "auto", arguments.model, arguments.streams
                ),
                f"faster-whisper {dtype}": lambda d=dtype: transcribe_with_peer(
                    folder, d, num_threads, None
                ),
                f"faster-whisper batched {dtype}": lambda d=dtype: transcribe_with_peer(
                    folder, d, num_threads, arguments.batch
                ),
            }
            for name, make in makers.items():
                transcribe = make()
                transcribe(sounds[0][: 20 * SAMPLE_RATE])  # warms up
                start = time.perf_counter()
                texts = [transcribe(sound) for sound in sounds]
                duration_s = time.perf_counter() - start
                errors = Errors()
                for recording, sound, text in zip(recordings, sounds, texts, strict=True):
                    is_whole = len(sound) >= (recording.duration_s - 1) * SAMPLE_RATE
                    errors += score(recording, text, is_whole)
                rows[name] = {
                    "seconds": round(duration_s, 2),
                    "x_real_time": round(num_seconds / duration_s, 2),
                    "word_error": round(errors.rate, 2),
                }
                print(
                    f"{name:28}{duration_s:9.1f}{num_seconds / duration_s:13.1f}"
                    f"{errors.rate:14.2f}",
                    flush=True,
                )
    print(json.dumps({"whole_file": rows, "audio_s": round(num_seconds), **describe()}))


if __name__ == "__main__":
    main()
