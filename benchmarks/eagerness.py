"""What does each `delay` setting cost in errors, and gain in time?

    python -m benchmarks.eagerness [--minutes 1] [--plot eagerness.png]

A simulated clock plays recordings at the pace of real time once per setting; a window costs what
base takes for it on two idle cores. The plot has a point per setting: how late text settles, and
how much more of it is wrong than in whole recordings.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator
from pathlib import Path

from benchmarks import delays
from benchmarks.hardware import describe
from benchmarks.recordings import Recording, list_recordings, sample
from benchmarks.scoring import Errors, compare, normalize
from benchmarks.simulation import play
from engine.api import Engine, Samples, Word
from engine.config import EngineConfig
from engine.local import load_engine
from streamer import offline
from streamer.settings import Delay, SessionSettings

CATEGORIES = ("read_en", "spontaneous_en", "phone_8k")
LIMIT_S = 90.0  # of one recording


@dataclasses.dataclass(slots=True)
class Result:
    """Sums over the recordings, for one setting."""

    delays: delays.Delays = dataclasses.field(default_factory=delays.Delays)
    streamed: Errors = dataclasses.field(default_factory=Errors)
    whole: Errors = dataclasses.field(default_factory=Errors)

    @property
    def excess(self) -> float:
        """Points of word error rate above whole recordings."""
        return self.streamed.rate - self.whole.rate


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="base")
    parser.add_argument("--minutes", type=float, default=1.0, help="of each category")
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()
    engine = load_engine(EngineConfig(model=arguments.model))
    recordings = sample(
        [r for r in list_recordings() if r.category in CATEGORIES], arguments.minutes
    )
    try:
        results = {delay: await measure(engine, recordings, delay) for delay in Delay}
    finally:
        engine.close()
    report(results)
    if arguments.plot:
        plot(results, arguments.plot)
    rows = {
        delay.value: {
            "excess_points": round(result.excess, 2),
            "settled_p50": round(delays.percentile(result.delays.settled_s, 50), 2),
            "settled_p95": round(delays.percentile(result.delays.settled_s, 95), 2),
        }
        for delay, result in results.items()
    }
    print(json.dumps({"eagerness": rows, "model": arguments.model, **describe()}))


async def measure(engine: Engine, recordings: list[Recording], delay: Delay) -> Result:
    """Play all recordings with one setting."""
    result = Result()
    for recording in recordings:
        samples = recording.read(LIMIT_S)
        settings = SessionSettings(language="en", delay=delay, word_times=True)
        played = await play(engine, samples, settings)
        text, words = "", list[Word]()
        async for hypothesis in offline.transcribe(engine, _once(samples), settings):
            text += hypothesis.text
            words += [word for segment in hypothesis.segments for word in segment.words]
        result.delays.add(delays.measure(played.told, words))
        if recording.duration_s <= LIMIT_S:
            truth = normalize(recording.text, "en")
            result.streamed += compare(truth, normalize(played.text, "en"))
            result.whole += compare(truth, normalize(text, "en"))
    return result


async def _once(samples: Samples) -> AsyncIterator[Samples]:
    yield samples


def report(results: dict[Delay, Result]) -> None:
    """Print the table; times in seconds."""
    print("          error   against     first right      settled       changed  held")
    print("delay         %     whole     p50    p95     p50    p95          %      %")
    for delay, result in results.items():
        d = result.delays
        print(
            f"{delay.value:8}{result.streamed.rate:7.2f}{result.excess:+10.2f}"
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
        middle = delays.percentile(result.delays.settled_s, 50)
        late = delays.percentile(result.delays.settled_s, 95)
        axes.plot([middle, late], [result.excess] * 2, color="0.75", linewidth=1, zorder=1)
        axes.scatter(middle, result.excess, zorder=2)
        axes.annotate(
            delay.value, (middle, result.excess), xytext=(5, 5), textcoords="offset points"
        )
    axes.set_xlabel("end of a word to its settling, s: the middle, and a line to the slowest 5 %")
    axes.set_ylabel("word error above whole recordings, points")
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    asyncio.run(main())
