"""How right is streamed text: against the same model decoding whole recordings, and the truth?

    python -m benchmarks.accuracy [--quick] [--shifts 3] [--model base] [--delay low]

A simulated clock plays every recording to a session; only the decodes are real. Whole recordings
go through the same speech detection, in windows of up to 30 s. Where nobody speaks, words that
were settled or final are counted, and so are all that were ever shown. With --shifts, each
recording is played several times, with ever more silence in front; the differences come
with their standard error over recordings. On a GPU, take more recordings at once.
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

from benchmarks.support.arguments import add_engine_arguments, append_line, choose_engine
from benchmarks.support.hardware import describe
from benchmarks.support.recordings import (
    SILENT,
    Recording,
    blocks_of,
    list_recordings,
    sample,
    shift,
)
from benchmarks.support.scoring import Errors, compare, normalize, standard_error
from benchmarks.support.simulation import Played, play
from engine.api import SAMPLE_RATE, Engine
from engine.local import load_engine
from streamer.recording.transcribe import transcribe
from streamer.transcription.events import Final, Partial
from streamer.transcription.settings import Delay, SessionSettings

LIMIT_S = 900.0  # of one recording; one is an hour of silence, no other is as long
PACKET = 10 * SAMPLE_RATE  # leaves out the refreshes, which never change a Final


@dataclass(slots=True)
class Tally:
    """Sums over the recordings of one category."""

    seconds: float = 0.0
    num_windows: int = 0
    num_unsettled: int = 0  # settled words that changed
    num_false: int = 0  # words in Finals where nobody speaks
    num_false_shown: int = 0  # ... and in partials
    whole: Errors = field(default_factory=Errors)  # whole recording against the truth
    streamed: Errors = field(default_factory=Errors)  # streamed against the truth
    between: Errors = field(default_factory=Errors)  # streamed against whole
    # words wrong in the streamed text more than in the whole one's, by recording
    more: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    @property
    def standard_error(self) -> float:
        """How much of the difference is chance, in points."""
        return standard_error(list(self.more.values()), self.whole.num_words)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add_engine_arguments(parser)
    parser.add_argument("--quick", action="store_true", help="a minute of each category")
    parser.add_argument("--delay", choices=[d.value for d in Delay], default="low")
    parser.add_argument("--categories", nargs="*", help="only these")
    parser.add_argument("--shifts", type=int, default=1, help="times that each is played")
    parser.add_argument("--show", action="store_true", help="print texts that differ")
    parser.add_argument("--texts", type=Path, help="add a line of JSON for every recording here")
    arguments = parser.parse_args()
    recordings = list_recordings(arguments.data)
    if arguments.categories:
        recordings = [r for r in recordings if r.category in arguments.categories]
    if arguments.quick:
        recordings = sample(recordings, minutes=1.0)
    settings = SessionSettings(delay=Delay(arguments.delay))
    engine = load_engine(choose_engine(arguments))
    try:
        tallies = await measure(
            engine,
            recordings,
            settings,
            at_once=arguments.at_once,
            shifts=arguments.shifts,
            show=arguments.show,
            texts=arguments.texts,
        )
        report(tallies, engine, settings)
    finally:
        engine.close()


async def measure(
    engine: Engine,
    recordings: list[Recording],
    settings: SessionSettings,
    *,
    at_once: int = 4,
    shifts: int = 1,
    show: bool = False,
    texts: Path | None = None,
) -> dict[str, Tally]:
    """Stream and decode all recordings, several at a time."""
    tallies: dict[str, Tally] = defaultdict(Tally)
    room = asyncio.Semaphore(at_once)

    async def one(recording: Recording, number: int) -> None:
        async with room:
            row = await _measure_one(engine, recording, number, settings, tallies, show=show)
            append_line(texts, row)

    async with asyncio.TaskGroup() as group:
        # the longest first, or they would be left over at the end
        for recording in sorted(recordings, key=lambda r: -min(r.duration_s, LIMIT_S)):
            for number in range(shifts):
                group.create_task(one(recording, number))
    return dict(sorted(tallies.items()))


async def _measure_one(
    engine: Engine,
    recording: Recording,
    shift_number: int,
    settings: SessionSettings,
    tallies: dict[str, Tally],
    *,
    show: bool,
) -> dict[str, object]:
    """Add a recording to the tally of its kind, and return what was written of it."""
    category = recording.category
    if category.startswith("lang"):
        category += f" {recording.language}"
    tally = tallies[category]
    samples = shift(recording.read(LIMIT_S), shift_number)
    settings = dataclasses.replace(settings, language=recording.language or None)
    played = await play(engine, samples, settings, packet=PACKET)
    whole = "".join([h.text async for h in transcribe(engine, blocks_of(samples), settings)])
    tally.seconds += len(samples) / SAMPLE_RATE
    tally.num_windows += len(played.windows)
    tally.num_unsettled += count_unsettled(played)
    row: dict[str, object] = {
        "name": recording.name,
        "category": category,
        "shift": shift_number,
        "truth": recording.text,
        "whole": whole,
        "finals": [[final.start, final.end, final.text] for final in played.finals],
        "unsettled": count_unsettled(played),
    }
    if recording.category in SILENT:
        tally.num_false += len(played.text.split())
        tally.num_false_shown += count_shown(played)
        return row | {"shown": count_shown(played)}
    digits = recording.is_digits
    truth = normalize(recording.text, recording.language, digits=digits)
    of_whole = normalize(whole, recording.language, digits=digits)
    of_streamed = normalize(played.text, recording.language, digits=digits)
    tally.whole += compare(truth, of_whole)
    tally.streamed += compare(truth, of_streamed)
    between = compare(of_whole, of_streamed)
    tally.between += between
    wrong = row["wrong"] = [compare(truth, w).num_wrong for w in (of_whole, of_streamed)]
    tally.more[recording.name] += wrong[1] - wrong[0]
    if show and between.num_wrong:
        print(f"{recording.name}\n  truth    {' '.join(truth)}\n  whole    {' '.join(of_whole)}")
        print(f"  streamed {' '.join(of_streamed)}")
    return row


def count_shown(played: Played) -> int:
    """Count the words of the longest partial of every segment."""
    longest: dict[int, int] = defaultdict(int)
    for told in played.told:
        if isinstance(told.event, Partial):
            text = told.event.settled + told.event.volatile
            segment = told.event.segment
            longest[segment] = max(longest[segment], len(text.split()))
    return sum(longest.values())


def count_unsettled(played: Played) -> int:
    """Count the words that were settled and then changed. There must be none."""
    num_changed = 0
    settled: dict[int, str] = {}
    for told in played.told:
        match told.event:
            case Partial(segment=segment, settled=text) | Final(segment=segment, text=text):
                before = settled.get(segment, "")
                if not text.startswith(before):
                    num_changed += max(1, len(before.split()) - len(text.split()))
                settled[segment] = text
    return num_changed


def report(tallies: dict[str, Tally], engine: Engine, settings: SessionSettings) -> None:
    """Print the table, then the line of JSON."""
    print(
        f"{'category':16}{'min':>6}{'whole':>8}{'stream':>8}{'diff':>13}{'between':>9}{'lost':>6}"
        f"{'doubled':>9}{'changed':>9}{'windows/s':>11}"
    )
    rows = {}
    for name, tally in tallies.items():
        minutes = tally.seconds / 60
        rate = tally.num_windows / max(1.0, tally.seconds)
        rows[name] = {"minutes": round(minutes, 2), "windows_per_s": round(rate, 2)}
        if name in SILENT:
            rows[name] |= {
                "false_words_per_min": round(tally.num_false / minutes, 2),
                "shown_words_per_min": round(tally.num_false_shown / minutes, 2),
            }
            print(
                f"{name:16}{minutes:6.1f}   false words per minute: {tally.num_false / minutes:.2f}"
                f" final, {tally.num_false_shown / minutes:.2f} shown"
            )
            continue
        whole, streamed = tally.whole.rate, tally.streamed.rate
        rows[name] |= {
            "whole": round(whole, 2),
            "streamed": round(streamed, 2),
            "standard_error": round(tally.standard_error, 2),
            "between": round(tally.between.rate, 2),
            "lost": tally.between.num_lost,
            "doubled": tally.between.num_doubled,
            "changed": tally.num_unsettled,
        }
        print(
            f"{name:16}{minutes:6.1f}{whole:8.2f}{streamed:8.2f}{streamed - whole:+7.2f}"
            f" ±{tally.standard_error:4.2f}{tally.between.rate:9.2f}{tally.between.num_lost:6}"
            f"{tally.between.num_doubled:9}"
            f"{tally.num_unsettled:9}{rate:11.2f}"
        )
    how = {"model": engine.info.name, "device": engine.info.device, "dtype": engine.info.dtype}
    how["delay"] = settings.delay.value
    print(json.dumps({"accuracy": rows, **how, **describe(), "time": int(time.time())}))


if __name__ == "__main__":
    asyncio.run(main())
