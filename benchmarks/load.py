"""How does the service carry many clients: delays, lag, refusals, errors, lost words?

    python -m benchmarks.load [--url ws://... | --serve="--model tiny.en"] [--clients 1,4,12]
        [--seconds 60] [--protocols native,deepgram,realtime,whisperlive] [--leave 0.1]

Each number of clients is a phase. Its clients join over the first seconds, speak recordings at the
pace of real time, leave at the end of a talk of 15 to 40 s, some of them without a word, and join
again with another one. A refused client comes back after a second. Delays are those from the known
end of a recording to the text that covers it; lost words are runs of three or more that are in the
reference and in no final. At the end of each phase, when all have left, the memory and the
descriptors of a service that was started here are noted.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import shlex
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.support.hardware import describe
from benchmarks.support.load_client import DIALECTS, Visit, visit
from benchmarks.support.recordings import Recording, list_recordings
from benchmarks.support.scoring import Errors, compare, normalize
from benchmarks.support.service import serving
from benchmarks.support.talk import Talk, make_talk
from engine.api import Samples

TALK_S = (15.0, 40.0)
JOIN_S = 3.0  # over which the clients of a phase join
RETRY_S = 1.0
REST_S = 25.0  # before memory is measured: what was freed is given back
NEAR_S = 1.0  # between the end of a text and that of the recording that it belongs to


@dataclass
class Phase:
    """One number of clients, and what came of them."""

    num_clients: int
    visits: list[Visit] = field(default_factory=list)
    final_s: list[float] = field(default_factory=list)
    errors: Errors = field(default_factory=Errors)  # of the words of clients that stayed

    def add(self, found: Visit, talk: Talk) -> None:
        self.visits.append(found)
        for said in found.finals:
            nearest = min(talk.ends_s, key=lambda end_s: abs(end_s - said.end_s))
            if said.text.strip() and abs(nearest - said.end_s) < NEAR_S:
                self.final_s.append(said.at_s - nearest)
        if found.refused is None and found.error is None and not found.left_early:
            self.errors += compare(normalize(talk.text, "en"), normalize(found.text, "en"))

    def row(self) -> dict[str, object]:
        """Sum the phase up."""
        admitted = [found for found in self.visits if found.refused is None]
        return {
            "clients": self.num_clients,
            "talks": len(admitted),
            "refused": dict(Counter(found.refused for found in self.visits if found.refused)),
            "errors": dict(Counter(found.error for found in admitted if found.error)),
            "final_p50_s": percentile(self.final_s, 50),
            "final_p95_s": percentile(self.final_s, 95),
            "first_text_p95_s": percentile([s for v in admitted for s in v.first_text_s], 95),
            "lag_p95_s": percentile([s for v in admitted for s in v.lags_s], 95),
            "word_error_percent": round(self.errors.rate, 1),
            "lost_words": self.errors.num_lost,
            "words": self.errors.num_words,
        }


def percentile(values: Sequence[float], percent: float) -> float | None:
    return round(float(np.percentile(values, percent)), 3) if values else None


async def run_phase(
    url: str,
    clips: Sequence[tuple[Recording, Samples]],
    num_clients: int,
    arguments: argparse.Namespace,
) -> Phase:
    """Let a number of clients come and go for the time of a phase."""
    phase, end = Phase(num_clients), time.monotonic() + arguments.seconds
    protocols = arguments.protocols.split(",")

    async def client(number: int) -> None:
        draw = random.Random(number)
        await asyncio.sleep(number / num_clients * JOIN_S)
        for turn in range(10_000):
            left_s = end - time.monotonic()
            if left_s < TALK_S[0] and turn:
                return
            talk = make_talk(clips, min(draw.uniform(*TALK_S), left_s), draw.randrange(10**9))
            leaves_after_s = draw.uniform(2, 10) if draw.random() < arguments.leave else None
            protocol = protocols[(number + turn) % len(protocols)]
            found = await visit(
                url, protocol, talk, key=arguments.key, leaves_after_s=leaves_after_s
            )
            phase.add(found, talk)
            if found.refused is not None:
                await asyncio.sleep(RETRY_S)

    await asyncio.gather(*(client(number) for number in range(num_clients)))
    return phase


async def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--url", default="")
    parser.add_argument("--key", default=None)
    parser.add_argument("--serve", default="", help="options of a service that is started here")
    parser.add_argument("--clients", default="1,4,12")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--protocols", default=",".join(DIALECTS))
    parser.add_argument("--leave", type=float, default=0.1)
    arguments = parser.parse_args()
    recordings = [r for r in list_recordings() if r.category == "read_en" and r.duration_s < 12]
    clips = [(recording, recording.read()) for recording in recordings[:40]]
    rows = []
    async with contextlib.AsyncExitStack() as stack:
        url, served = arguments.url, None
        if not url:
            options = shlex.split(arguments.serve)
            served = await stack.enter_async_context(serving(*options))
            url = served.ws
        for number in arguments.clients.split(","):
            row = (await run_phase(url, clips, int(number), arguments)).row()
            if served is not None:
                await asyncio.sleep(REST_S)
                row |= {"memory_mib": served.measure_memory(), "files": served.count_files()}
            rows.append(row)
            if len(rows) == 1:
                print(" ".join(f"{name:>12.12}" for name in row))
            print(" ".join(f"{json.dumps(value):>12}" for value in row.values()), flush=True)
    print(json.dumps({"benchmark": "load", "phases": rows, **describe()}))


if __name__ == "__main__":
    asyncio.run(main())
