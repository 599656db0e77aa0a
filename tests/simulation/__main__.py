"""Run histories, and print each kind of failure with its smallest history.

    nice python -m tests.simulation --seeds 10000           # the pure core
    nice python -m tests.simulation --native --seeds 1000   # the whole session of /v1/stream
    python -m tests.simulation --first 4711 --seeds 1       # one history, as it was drawn

A history's numbers depend on its seed alone. What fails is made smaller, and belongs into
`tests/simulation/test_regressions.py` once it is understood.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback

from tests.simulation.core import run_core
from tests.simulation.history import make_history
from tests.simulation.native import make_native_history, run_native
from tests.simulation.shrink import failure_of, kind_of, shrink
from tests.simulation.track import listening_by_level


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1_000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--traces", action="store_true", help="print tracebacks")
    parser.add_argument("--native", action="store_true", help="play them to whole sessions")
    options = parser.parse_args()
    run = run_native if options.native else run_core
    make = make_native_history if options.native else make_history
    failed: dict[str, list[int]] = {}
    began_s, audio_s = time.process_time(), 0.0
    with listening_by_level():
        for seed in range(options.first, options.first + options.seeds):
            history = make(seed)
            audio_s += history.length / 16_000
            error = failure_of(run, history)
            if error is not None:
                failed.setdefault(kind_of(error), []).append(seed)
        elapsed_s = time.process_time() - began_s
        for kind, seeds in failed.items():
            print(f"\n{kind}: {len(seeds)} histories, seeds {seeds[:8]}")
            smallest = shrink(run, make(seeds[0]), kind)
            print(smallest.describe())
            error = failure_of(run, smallest)
            assert error is not None, "the same again"
            print(error)
            if options.traces:
                traceback.print_exception(error)
    num_failed = sum(map(len, failed.values()))
    print(
        f"\n{options.seeds} histories, {num_failed} failed; {elapsed_s:.0f} s, "
        f"{options.seeds / elapsed_s * 60:.0f} a minute, {audio_s / elapsed_s:.0f} x real time"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
