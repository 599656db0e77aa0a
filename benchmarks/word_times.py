"""Do words begin and end where another implementation finds them?

    python -m benchmarks.word_times [--model base] [--every 6]

The same recordings go through our engine, with the silence after the audio encoded in full and as
by default, and through faster-whisper, which times words by CTranslate2's alignment in a second
pass without timestamps, all with the same weights. Words that both wrote are compared.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from dataclasses import dataclass
from difflib import SequenceMatcher

import faster_whisper
import numpy as np

from benchmarks.support.faster_whisper import lay_out
from benchmarks.support.hardware import describe
from benchmarks.support.recordings import Recording, list_recordings
from engine.api import SAMPLE_RATE, Samples, StreamOptions, Window
from engine.config import EngineConfig
from engine.local import LocalEngine, load_engine

CATEGORIES = ("read_en", "lang", "spontaneous_en", "phone_8k")


@dataclass(frozen=True, slots=True)
class Said:
    """A word and its place in the recording, in milliseconds."""

    text: str
    start_ms: float
    end_ms: float
    probability: float


async def time_words(engine: LocalEngine, audio: Samples, language: str) -> list[Said]:
    options = StreamOptions(language=language, temperatures=(0.0,))
    async with engine.stream(options) as stream:
        window = Window(0, audio, is_final=True, word_times=True)
        hypothesis = await stream.decode(window)
    return [
        Said(word.text, to_ms(word.start), to_ms(word.end), word.probability)
        for segment in hypothesis.segments
        for word in segment.words
    ]


def to_ms(position: int) -> float:
    return position * 1000 / SAMPLE_RATE


def time_words_there(
    model: faster_whisper.WhisperModel, audio: Samples, language: str
) -> list[Said]:
    segments, _ = model.transcribe(
        audio,
        language=language,
        beam_size=1,
        temperature=0.0,
        condition_on_previous_text=False,
        word_timestamps=True,
    )
    return [
        Said(word.word, word.start * 1000, word.end * 1000, word.probability)
        for segment in segments
        for word in segment.words or ()
    ]


def compare(ours: list[Said], theirs: list[Said], differences: dict[str, list[float]]) -> None:
    """Add the differences of the words that both have."""
    matcher = SequenceMatcher(
        a=[word.text for word in ours], b=[word.text for word in theirs], autojunk=False
    )
    for block in matcher.get_matching_blocks():
        for n in range(block.size):
            a, b = ours[block.a + n], theirs[block.b + n]
            differences["start_ms"].append(abs(a.start_ms - b.start_ms))
            differences["end_ms"].append(abs(a.end_ms - b.end_ms))
            differences["probability"].append(abs(a.probability - b.probability))


async def measure(
    config: EngineConfig, recordings: list[Recording], expected: dict[str, list[Said]]
) -> dict[str, float]:
    differences: dict[str, list[float]] = {"start_ms": [], "end_ms": [], "probability": []}
    engine = load_engine(config)
    try:
        for recording in recordings:
            ours = await time_words(engine, recording.read(), recording.language)
            compare(ours, expected[recording.name], differences)
    finally:
        engine.close()
    result: dict[str, float] = {"words": len(differences["start_ms"])}
    for name, values in differences.items():
        for percent in (50, 95):
            result[f"{name}_p{percent}"] = round(float(np.percentile(values, percent)), 3)
    return result


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="base")
    parser.add_argument("--every", type=int, default=6, help="take every n-th recording")
    arguments = parser.parse_args()
    recordings = [
        r for r in list_recordings() if r.category in CATEGORIES and 3 <= r.duration_s <= 29
    ][:: arguments.every]
    if arguments.model.endswith(".en"):
        recordings = [r for r in recordings if r.language == "en"]
    with lay_out(arguments.model) as folder:
        model = faster_whisper.WhisperModel(folder, device="cpu", compute_type="float32")
        expected = {r.name: time_words_there(model, r.read(), r.language) for r in recordings}
        del model
    results = {}
    for tail in ("full", "auto"):
        config = EngineConfig(model=arguments.model, dtype="float32", encoder_tail=tail)
        results[tail] = await measure(config, recordings, expected)
    print(f"{'difference':18}" + "".join(f"{tail:>10}" for tail in results))
    for name in results["full"]:
        print(f"{name:18}" + "".join(f"{result[name]:10g}" for result in results.values()))
    summary = {"model": arguments.model, "recordings": len(recordings), **results}
    print(json.dumps({"word_times": summary, **describe()}))


if __name__ == "__main__":
    asyncio.run(main())
