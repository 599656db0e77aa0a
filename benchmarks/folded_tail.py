"""What does folding the silence after the audio cost in words, and what does it save in time?

    python -m benchmarks.folded_tail [--model base] [--tails full 10 25 50] [--margins 0.5 1 2]
    python -m benchmarks.folded_tail --figure docs/window_cost.png

Recordings of speech of at most 30 s, whole and cut after 35 % and 65 %, are decoded as final
windows under each setting, with the language given. Whole ones are scored against the truth; all
are compared with what the full encoder writes. A loop is a text that the guard stopped or that
compresses better than 2.4.

One text hangs on rounding; the mean of many does not. With --shifts, whole recordings are decoded
so many times, each with a little more silence before them, and the differences from `full` come
with their standard error over recordings. With --figure, the processor time of windows is drawn.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.support.arguments import add_engine_arguments, append_line, choose_engine, read_tail
from benchmarks.support.hardware import describe
from benchmarks.support.recordings import Recording, list_recordings, shift
from benchmarks.support.scoring import Errors, compare, normalize, standard_error
from engine.api import SAMPLE_RATE, Hypothesis, Samples, StreamOptions, Window
from engine.config import EngineConfig
from engine.local import LocalEngine, load_engine

ENGLISH = ("read_en", "phone_8k", "noisy_en", "level_en", "spontaneous_en")
OTHERS = ("lang", "lang_8k")
CUTS = (0.35, 0.65, 1.0)
SECONDS = (1, 2, 4, 6, 8, 10, 15, 20, 30)


@dataclass(slots=True)
class Score:
    """What one setting gave."""

    # of whole recordings against the truth, by language, then by name
    errors: dict[str, dict[str, Errors]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(Errors))
    )
    changed: Errors = field(default_factory=Errors)  # all windows against the full encoder's text
    num_loops: int = 0
    num_new_loops: int = 0  # that the full encoder does not have in the same window
    window_ms: float = 0.0
    encode_ms: float = 0.0

    def list_errors(self, *, is_english: bool) -> dict[str, Errors]:
        """Return the errors in English recordings, or in all others, by name."""
        return {
            name: errors
            for language, by_name in self.errors.items()
            if (language == "en") is is_english
            for name, errors in by_name.items()
        }


@dataclass(frozen=True, slots=True)
class Case:
    recording: Recording
    audio: Samples
    is_whole: bool


def is_loop(hypothesis: Hypothesis) -> bool:
    return hypothesis.is_truncated or hypothesis.compression_ratio > 2.4


def make_cases(recordings: list[Recording], num_shifts: int) -> list[Case]:
    cases = []
    for recording in recordings:
        audio = recording.read(30.0)
        cases += [Case(recording, audio[: int(cut * len(audio))], cut == 1.0) for cut in CUTS]
        for n in range(1, num_shifts):
            cases.append(Case(recording, shift(audio, n)[: 30 * SAMPLE_RATE], True))
    return cases


async def decode(engine: LocalEngine, cases: list[Case], at_once: int) -> list[Hypothesis]:
    """Decode greedily, without fallback: it would hide what the tail does."""
    gate = asyncio.Semaphore(at_once)

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
        recording = case.recording
        digits = recording.category.startswith("digits")

        def words(text: str, language: str = recording.language, d: bool = digits) -> list[str]:
            return normalize(text, language, digits=d)

        said = words(hypothesis.text)
        result.changed += compare(words(reference.text), said)
        result.num_loops += is_loop(hypothesis)
        result.num_new_loops += is_loop(hypothesis) and not is_loop(reference)
        if case.is_whole and recording.text:
            by_name = result.errors[recording.language]
            by_name[recording.name] += compare(words(recording.text), said)
    counters = engine.counters
    result.encode_ms = 1000 * counters.encode_s / len(cases)
    result.window_ms = result.encode_ms + 1000 * counters.decode_s / len(cases)
    return result


def rate(errors: dict[str, Errors]) -> float:
    """Return the word error rate of recordings together, in percent."""
    return sum(errors.values(), Errors()).rate


def summarise(result: Score, full: Score) -> dict[str, object]:
    """Make a setting's entry in the line of JSON."""
    row: dict[str, object] = {}
    for name, is_english in (("english", True), ("others", False)):
        errors = result.list_errors(is_english=is_english)
        before = full.list_errors(is_english=is_english)
        row[name] = round(rate(errors), 2)
        row[f"{name}_more"] = round(rate(errors) - rate(before), 2)
        more = [errors[each].num_wrong - before[each].num_wrong for each in before]
        num_words = sum(each.num_words for each in before.values())
        row[f"{name}_standard_error"] = round(standard_error(more, num_words), 2)
    row["languages"] = {
        language: [round(rate(errors), 2), round(rate(errors) - rate(full.errors[language]), 2)]
        for language, errors in sorted(result.errors.items())
    }
    # which recordings carry the difference: errors more, and words
    carried = {
        name: [errors.num_wrong - full.errors[language][name].num_wrong, errors.num_words]
        for language, by_name in result.errors.items()
        for name, errors in by_name.items()
    }
    worst = sorted(carried, key=lambda name: -abs(carried[name][0]))[:12]
    row["most_changed"] = {name: carried[name] for name in worst if carried[name][0]}
    row["changed"] = round(result.changed.rate, 2)
    row["loops"], row["new_loops"] = result.num_loops, result.num_new_loops
    row["encode_ms"] = round(result.encode_ms, 1)
    row["window_ms"] = round(result.window_ms, 1)
    return row


async def compare_tails(arguments: argparse.Namespace) -> None:
    recordings = [
        r
        for r in list_recordings(arguments.data)
        if r.category in ENGLISH + OTHERS and 1 <= r.duration_s <= 30 and r.language
    ]
    if arguments.model.endswith(".en"):
        recordings = [r for r in recordings if r.language == "en"]
    recordings = recordings[arguments.first :: arguments.every]
    cases = make_cases(recordings, arguments.shifts)
    print(f"{len(cases)} windows of {len(recordings)} recordings")
    print(
        f"{'tail':>6}{'margin':>8}{'English':>9}{'more':>13}{'others':>8}{'more':>13}"
        f"{'changed':>9}{'loops':>7}{'new':>5}{'encode ms':>11}{'window ms':>11}"
    )
    rows = {}
    full: list[Hypothesis] = []
    full_score: Score | None = None
    for name in arguments.tails:
        for margin in arguments.margins if name != "full" else [1.0]:
            engine = load_engine(
                dataclasses.replace(
                    choose_engine(arguments),
                    encoder_tail=read_tail(name),
                    tail_margin_s=margin,
                    num_threads=arguments.threads,
                )
            )
            try:
                found = await decode(engine, cases, arguments.at_once)
                full = full or found  # the first setting is what the others are compared with
                result = score(cases, found, full, engine)
            finally:
                engine.close()
            full_score = full_score or result
            row = rows[f"{name}+{margin}"] = summarise(result, full_score)
            texts = [
                [c.recording.name, len(c.audio), h.text] for c, h in zip(cases, found, strict=True)
            ]
            append_line(arguments.texts, {"tail": name, "margin": margin, **row, "texts": texts})
            rates = " ".join(
                f"{row[kind]:8.2f}{row[f'{kind}_more']:+7.2f} ±{row[f'{kind}_standard_error']:4.2f}"
                for kind in ("english", "others")
            )
            print(
                f"{name:>6}{margin:8.1f}{rates}{row['changed']:9.2f}{row['loops']:7}{row['new_loops']:5}"
                f"{row['encode_ms']:11.1f}{row['window_ms']:11.1f}",
                flush=True,
            )
    how = {"model": arguments.model, "device": engine.info.device, "dtype": engine.info.dtype}
    print(json.dumps({"folded_tail": rows, **how, "windows": len(cases), **describe()}))


async def measure_cost(engine: LocalEngine, audio: Samples, repeats: int) -> list[float]:
    """Return the median processor time, ms, of a window of each of SECONDS, with its draft.

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
            EngineConfig(model=arguments.model, dtype=arguments.dtype, encoder_tail=read_tail(name))
        )
        try:
            rows[name] = await measure_cost(engine, audio, arguments.repeats)
        finally:
            engine.close()
        label = "full: all 1,500 positions" if name == "full" else f"silence folded by {name}"
        axes.plot(SECONDS, rows[name], marker="o", label=label)
        print(name, " ".join(f"{s}s {ms:.0f}" for s, ms in zip(SECONDS, rows[name], strict=True)))
    hardware = describe()
    axes.set_xlabel("seconds of audio in the window")
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
    add_engine_arguments(parser)
    parser.add_argument("--tails", nargs="+", default=["full", "10", "25", "50"])
    parser.add_argument("--margins", nargs="+", type=float, default=[1.0])
    parser.add_argument("--every", type=int, default=1, help="take every n-th recording")
    parser.add_argument("--shifts", type=int, default=1, help="times that each is decoded whole")
    parser.add_argument("--texts", type=Path, help="add a line of JSON for every setting here")
    parser.add_argument("--figure", help="draw time against seconds into this PNG instead")
    parser.add_argument("--first", type=int, default=0, help="recording")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    asyncio.run(draw(arguments) if arguments.figure else compare_tails(arguments))


if __name__ == "__main__":
    main()
