"""What does each `delay` setting cost in errors, and gain in time?

    python -m benchmarks.eagerness [--minutes 1] [--delays low high] [--plot eagerness.png]
    python -m benchmarks.eagerness --read low.jsonl high.jsonl --plot docs/eagerness.png

A simulated clock plays recordings at the pace of real time once per setting; a window costs what
base takes for it on two idle cores. The plot has a point per setting: how late text settles, and
how much more of it is wrong than in whole recordings. --read takes what runs wrote with --texts.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
from pathlib import Path

from benchmarks.support import delays
from benchmarks.support.arguments import add_engine_arguments, append_line, choose_engine
from benchmarks.support.hardware import describe
from benchmarks.support.recordings import Recording, blocks_of, list_recordings, sample
from benchmarks.support.scoring import Comparison
from benchmarks.support.simulation import play
from engine.api import Engine, Word
from engine.local import load_engine
from streamer.recording.transcribe import transcribe
from streamer.transcription.settings import Delay, SessionSettings

CATEGORIES = ("read_en", "spontaneous_en", "phone_8k")
LIMIT_S = 90.0  # of one recording


@dataclasses.dataclass(slots=True)
class Result:
    """Sums over the recordings, for one setting."""

    delays: delays.Delays = dataclasses.field(default_factory=delays.Delays)
    errors: Comparison = dataclasses.field(default_factory=Comparison)

    def score(self, recording: Recording, streamed: str, whole: str) -> None:
        """Count the errors of a recording, unless only a part of it was played."""
        if recording.duration_s <= LIMIT_S:
            self.errors.add(recording.text, streamed, whole)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add_engine_arguments(parser)
    parser.add_argument("--minutes", type=float, default=1.0, help="of each category")
    parser.add_argument(
        "--delays", nargs="+", choices=[d.value for d in Delay], default=[d.value for d in Delay]
    )
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--texts", type=Path, help="add a line of JSON for every recording here")
    parser.add_argument("--read", type=Path, nargs="+", help="draw these runs instead of playing")
    arguments = parser.parse_args()
    if arguments.read:
        results = read(arguments.read, list_recordings(arguments.data))
        report(results)
        if arguments.plot:
            plot(results, arguments.plot)
        return
    recordings = sample(
        [r for r in list_recordings(arguments.data) if r.category in CATEGORIES], arguments.minutes
    )
    engine = load_engine(choose_engine(arguments))
    try:
        results = {
            delay: await measure(engine, recordings, delay, arguments.at_once, arguments.texts)
            for delay in map(Delay, arguments.delays)
        }
    finally:
        engine.close()
    report(results)
    if arguments.plot:
        plot(results, arguments.plot)
    rows = {
        delay.value: {
            "error": round(result.errors.streamed.rate, 2),
            "excess_points": round(result.errors.excess, 2),
            "shown_p50": round(delays.percentile(result.delays.shown_s, 50), 2),
            "shown_p95": round(delays.percentile(result.delays.shown_s, 95), 2),
            "settled_p50": round(delays.percentile(result.delays.settled_s, 50), 2),
            "settled_p95": round(delays.percentile(result.delays.settled_s, 95), 2),
            "changed_percent": round(
                100 * result.delays.num_changed / max(1, result.delays.num_shown), 1
            ),
            "held_changed_percent": round(
                100 * result.delays.num_held_changed / max(1, result.delays.num_held), 1
            ),
            "words": len(result.delays.settled_s),
        }
        for delay, result in results.items()
    }
    how = {"model": engine.info.name, "device": engine.info.device, "dtype": engine.info.dtype}
    print(json.dumps({"eagerness": rows, **how, **describe()}))


async def measure(
    engine: Engine,
    recordings: list[Recording],
    delay: Delay,
    at_once: int = 4,
    texts: Path | None = None,
) -> Result:
    """Play all recordings with one setting, several at a time."""
    result = Result()
    room = asyncio.Semaphore(at_once)
    settings = SessionSettings(language="en", delay=delay, word_times=True)

    async def one(recording: Recording) -> None:
        async with room:
            samples = recording.read(LIMIT_S)
            played = await play(engine, samples, settings)
            text, words = "", list[Word]()
            async for hypothesis in transcribe(engine, blocks_of(samples), settings):
                text += hypothesis.text
                words += [word for segment in hypothesis.segments for word in segment.words]
            found = delays.measure(played.told, words)
            result.delays.add(found)
            result.score(recording, played.text, text)
            row: dict[str, object] = {"name": recording.name, "delay": delay.value, "whole": text}
            row |= {"streamed": played.text, "windows": len(played.windows)}
            append_line(texts, row | dataclasses.asdict(found))

    async with asyncio.TaskGroup() as group:
        for recording in sorted(recordings, key=lambda r: -r.duration_s):
            group.create_task(one(recording))
    return result


def read(paths: list[Path], recordings: list[Recording]) -> dict[Delay, Result]:
    """Add up the lines that runs wrote with --texts."""
    by_name = {recording.name: recording for recording in recordings}
    fields = {field.name for field in dataclasses.fields(delays.Delays)}
    results: dict[Delay, Result] = {}
    for line in "".join(path.read_text() for path in paths).splitlines():
        row = json.loads(line)
        result = results.setdefault(Delay(row["delay"]), Result())
        result.delays.add(delays.Delays(**{name: row[name] for name in fields}))
        result.score(by_name[row["name"]], row["streamed"], row["whole"])
    return {delay: results[delay] for delay in Delay if delay in results}


def report(results: dict[Delay, Result]) -> None:
    """Print the table; times in seconds."""
    print("          error   against     first right      settled       changed  held")
    print("delay         %     whole     p50    p95     p50    p95          %      %")
    for delay, result in results.items():
        d = result.delays
        print(
            f"{delay.value:8}{result.errors.streamed.rate:7.2f}{result.errors.excess:+10.2f}"
            f"{delays.percentile(d.shown_s, 50):8.2f}{delays.percentile(d.shown_s, 95):7.2f}"
            f"{delays.percentile(d.settled_s, 50):8.2f}{delays.percentile(d.settled_s, 95):7.2f}"
            f"{100 * d.num_changed / max(1, d.num_shown):11.1f}"
            f"{100 * d.num_held_changed / max(1, d.num_held):7.1f}"
        )


def plot(results: dict[Delay, Result], path: Path) -> None:
    """Draw settling against error, a point per setting, to a PNG."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 4), layout="constrained")
    for delay, result in results.items():
        median = delays.percentile(result.delays.settled_s, 50)
        late = delays.percentile(result.delays.settled_s, 95)
        axes.plot([median, late], [result.errors.excess] * 2, color="0.75", linewidth=1, zorder=1)
        axes.scatter(median, result.errors.excess, zorder=2)
        axes.annotate(
            delay.value, (median, result.errors.excess), xytext=(5, 5), textcoords="offset points"
        )
    axes.set_xlabel("end of a word until it is settled, s: median, and a line to the p95")
    axes.set_ylabel("extra word error over whole recordings, points")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    asyncio.run(main())
