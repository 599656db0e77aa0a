"""What does folding the silence after the sound cost in words, and what does it save in time?

    python -m benchmarks.folded_tail [--model base] [--tails full 10 25 50] [--every 2]
    python -m benchmarks.folded_tail --figure docs/window_cost.png

Recordings of speech of at most 30 s, whole and cut after 35 % and 65 %, are decoded as final
windows under each setting, with the language given. Whole ones are scored against the truth; all
are compared with what the full encoder gives. A loop is a text that the guard stopped or that
compresses better than 2.4. With --figure, the processor time of windows is drawn instead.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from dataclasses import dataclass, field

import numpy as np

from benchmarks.hardware import describe
from benchmarks.recordings import Recording, list_recordings
from benchmarks.scoring import Errors, compare, normalize
from engine.api import SAMPLE_RATE, Hypothesis, Samples, StreamOptions, Window
from engine.config import EngineConfig
from engine.local import LocalEngine, load_engine

ENGLISH = ("read_en", "phone_8k", "noisy_en", "level_en", "spontaneous_en")
OTHERS = ("lang", "lang_8k")
CUTS = (0.35, 0.65, 1.0)
NUM_STREAMS = 4
SECONDS = (1, 2, 4, 6, 8, 10, 15, 20, 30)


@dataclass(slots=True)
class Score:
    """What one setting gave."""

    english: Errors = field(default_factory=Errors)  # whole recordings against the truth
    others: Errors = field(default_factory=Errors)
    changed: Errors = field(default_factory=Errors)  # all windows against the full encoder's text
    num_loops: int = 0
    num_new_loops: int = 0  # that the full encoder does not have in the same window
    window_ms: float = 0.0
    encode_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Case:
    recording: Recording
    audio: Samples
    is_whole: bool


def tail(text: str) -> str | int:
    return text if text in ("full", "auto") else int(text)


def is_loop(hypothesis: Hypothesis) -> bool:
    return hypothesis.is_truncated or hypothesis.compression_ratio > 2.4


async def decode(engine: LocalEngine, cases: list[Case]) -> list[Hypothesis]:
    """Decode greedily, without fallback: it would hide what the tail does."""
    gate = asyncio.Semaphore(NUM_STREAMS)

    async def run(case: Case) -> Hypothesis:
        options = StreamOptions(language=case.recording.language, temperatures=(0.0,))
        async with gate, engine.stream(options) as stream:
            return await stream.decode(Window(0, case.audio, is_final=True))

    return list(await asyncio.gather(*(run(case) for case in cases)))


def score(
    cases: list[Case], found: list[Hypothesis], full: list[Hypothesis], engine: LocalEngine
) -> Score:
    result = Score()
    for case, hypothesis, reference in zip(cases, found, full, strict=True):
        language = case.recording.language
        digits = case.recording.category.startswith("digits")
        words = normalize(hypothesis.text, language, digits=digits)
        result.changed += compare(normalize(reference.text, language, digits=digits), words)
        result.num_loops += is_loop(hypothesis)
        result.num_new_loops += is_loop(hypothesis) and not is_loop(reference)
        if case.is_whole and case.recording.text:
            truth = compare(normalize(case.recording.text, language, digits=digits), words)
            if language == "en":
                result.english += truth
            else:
                result.others += truth
    counters = engine.counters
    result.encode_ms = 1000 * counters.encode_s / len(cases)
    result.window_ms = result.encode_ms + 1000 * counters.decode_s / len(cases)
    return result


async def compare_tails(arguments: argparse.Namespace) -> None:
    recordings = [
        r
        for r in list_recordings()
        if r.category in ENGLISH + OTHERS and 1 <= r.duration_s <= 30 and r.language
    ]
    if arguments.model.endswith(".en"):
        recordings = [r for r in recordings if r.language == "en"]
    cases = []
    for recording in recordings[arguments.first :: arguments.every]:
        audio = recording.read(30.0)
        cases += [Case(recording, audio[: int(cut * len(audio))], cut == 1.0) for cut in CUTS]
    print(
        f"{len(cases)} windows of {len(recordings[arguments.first :: arguments.every])} recordings"
    )
    print(
        f"{'tail':>6}{'margin':>8}{'English':>9}{'others':>8}{'changed':>9}{'loops':>7}"
        f"{'new':>5}{'encode ms':>11}{'window ms':>11}"
    )
    rows = {}
    full: list[Hypothesis] = []
    for name in arguments.tails:
        for margin in arguments.margins if name != "full" else [1.0]:
            engine = load_engine(
                EngineConfig(
                    model=arguments.model,
                    dtype=arguments.dtype,
                    encoder_tail=tail(name),
                    tail_margin_s=margin,
                    num_threads=arguments.threads,
                )
            )
            try:
                found = await decode(engine, cases)
                full = full or found  # the first setting is what the others are compared with
                result = score(cases, found, full, engine)
            finally:
                engine.close()
            rows[f"{name}+{margin}"] = {
                "english": round(result.english.rate, 2),
                "others": round(result.others.rate, 2),
                "changed": round(result.changed.rate, 2),
                "loops": result.num_loops,
                "new_loops": result.num_new_loops,
                "encode_ms": round(result.encode_ms, 1),
                "window_ms": round(result.window_ms, 1),
            }
            print(
                f"{name:>6}{margin:8.1f}{result.english.rate:9.2f}{result.others.rate:8.2f}"
                f"{result.changed.rate:9.2f}{result.num_loops:7}{result.num_new_loops:5}"
                f"{result.encode_ms:11.1f}{result.window_ms:11.1f}",
                flush=True,
            )
    print(
        json.dumps(
            {
                "folded_tail": rows,
                "model": arguments.model,
                "dtype": arguments.dtype,
                "windows": len(cases),
                **describe(),
            }
        )
    )


async def measure_cost(engine: LocalEngine, audio: Samples, repeats: int) -> list[float]:
    """Give the median processor time, ms, of a window of each of SECONDS, with its draft.

    Unlike the time on the clock, it says the same on a machine that does other things too.
    """
    medians = []
    for seconds in SECONDS:
        window = Window(0, audio[: seconds * SAMPLE_RATE])
        earlier = Window(0, audio[: max(seconds - 1, 1) * SAMPLE_RATE])
        times = []
        for _ in range(repeats):
            async with engine.stream(StreamOptions(language="en")) as stream:
                await stream.decode(earlier)
                start = time.process_time()
                await stream.decode(window)
                times.append(1000 * (time.process_time() - start))
        medians.append(float(np.median(times)))
    return medians


async def draw(arguments: argparse.Namespace) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    longform = next(r for r in list_recordings() if r.category == "longform_en")
    audio = longform.read(40.0)[5 * SAMPLE_RATE :]
    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    rows = {}
    for name in arguments.tails:
        engine = load_engine(
            EngineConfig(model=arguments.model, dtype=arguments.dtype, encoder_tail=tail(name))
        )
        try:
            rows[name] = await measure_cost(engine, audio, arguments.repeats)
        finally:
            engine.close()
        label = "full: all 1,500 positions" if name == "full" else f"silence folded by {name}"
        axes.plot(SECONDS, rows[name], marker="o", label=label)
        print(name, " ".join(f"{s}s {ms:.0f}" for s, ms in zip(SECONDS, rows[name], strict=True)))
    hardware = describe()
    axes.set_xlabel("seconds of sound in the window")
    axes.set_ylabel("processor time for the window, ms")
    axes.set_title(
        f"Whisper {arguments.model}, {engine.info.dtype}, one second later than its draft"
    )
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(arguments.figure, dpi=150)
    print(json.dumps({"window_cost_ms": rows, "seconds": SECONDS, **hardware}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="base")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--tails", nargs="+", default=["full", "10", "25", "50"])
    parser.add_argument("--margins", nargs="+", type=float, default=[1.0])
    parser.add_argument("--every", type=int, default=2, help="take every n-th recording")
    parser.add_argument("--figure", help="draw time against seconds into this PNG instead")
    parser.add_argument("--first", type=int, default=0, help="recording")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    asyncio.run(draw(arguments) if arguments.figure else compare_tails(arguments))


if __name__ == "__main__":
    main()
