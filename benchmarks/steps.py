"""What do an encode, a verify pass and a decode step cost, against how many windows share them?

    python -m benchmarks.steps [--model base] [--dtype auto] [--seconds 4]

Windows of one length, a draft of 30 tokens each, and steps at about 45 cached positions. As in the
engine, all threads encode and one decodes.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import numpy as np
import torch

from benchmarks.support.hardware import describe
from benchmarks.support.recordings import list_recordings
from engine.api import SAMPLE_RATE, Samples, Task
from engine.batching.draft import Draft
from engine.batching.encoder_threads import DECODER_THREADS
from engine.batching.page_pool import PagePool
from engine.batching.sequence import Phase, Sequence
from engine.build import CROSS_PAGE_SIZE, DEFAULT_FOLD, SELF_PAGE_SIZE
from engine.config import EngineConfig
from engine.local import LocalEngine
from engine.model.folded_tail import KeptPositions, choose_positions

BATCHES = (1, 2, 4, 8)
DRAFT = 30  # tokens
MARGIN = 25  # positions; EngineConfig.tail_margin_s
REPEATS = 9


def measure(run: Callable[[], object]) -> float:
    """Return the median time of some runs, ms."""
    times = []
    for _ in range(REPEATS + 2):
        start = time.perf_counter()
        run()
        times.append(1000 * (time.perf_counter() - start))
    return float(np.median(times[2:]))


def make_sequences(engine: LocalEngine, count: int, kept: KeptPositions) -> list[Sequence]:
    """Make sequences that hold pages as the scheduler assigns them."""
    self_pool, cross_pool = PagePool(10_000, SELF_PAGE_SIZE), PagePool(10_000, CROSS_PAGE_SIZE)
    prefix = list(engine.tokenizer.start_sequence("en", Task.TRANSCRIBE))
    sequences = []
    for id in range(count):
        sequence = Sequence(id, id, False, 0.0, kept, prefix, 100, 0)
        sequence.self_pages = self_pool.allocate(sequence.num_positions) or ()
        sequence.cross_pages = cross_pool.allocate(kept.num_positions) or ()
        sequence.phase = Phase.RUNNING
        sequences.append(sequence)
    return sequences


def measure_batch(
    engine: LocalEngine, count: int, audio: Samples, kept: KeptPositions
) -> dict[str, float]:
    sequences = make_sequences(engine, count, kept)
    runner = engine.runner
    begin = engine.tokenizer.timestamp_begin
    text = [begin, *range(1000, 1000 + DRAFT - 1)]

    def verify() -> None:
        for sequence in sequences:
            sequence.restart(0.0)
            sequence.draft = Draft(text, begin)
        runner.step(sequences)

    def step() -> None:
        for sequence in sequences:
            sequence.restart(0.0)
            sequence.tokens = list(text)
            sequence.num_cached = len(sequence.prefix) + DRAFT - 1
        runner.step(sequences)

    num_threads = torch.get_num_threads()
    encode_ms = measure(lambda: runner.encode(sequences, [audio] * count))
    torch.set_num_threads(DECODER_THREADS)
    decode_ms = measure(verify), measure(step)
    torch.set_num_threads(num_threads)
    return {
        "encode_ms": round(encode_ms, 2),
        "verify_ms": round(decode_ms[0], 2),
        "step_ms": round(decode_ms[1], 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="base")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--seconds", type=float, default=4.0)
    arguments = parser.parse_args()
    # not started: its thread would only sleep
    engine = LocalEngine(EngineConfig(model=arguments.model, dtype=arguments.dtype, device="cpu"))
    torch.set_grad_enabled(False)
    recording = next(r for r in list_recordings() if r.category == "longform_en")
    audio = recording.read(60.0)[-int(arguments.seconds * SAMPLE_RATE) :]
    kept = choose_positions(len(audio), factor=DEFAULT_FOLD, margin=MARGIN)
    rows = {count: measure_batch(engine, count, audio, kept) for count in BATCHES}
    print(f"{engine.info.dtype}, {arguments.seconds:g} s of audio, {kept.num_positions} positions")
    print(f"{'windows':>8}{'encode ms':>11}{'verify ms':>11}{'step ms':>9}{'of one':>10}")
    for count, row in rows.items():
        print(
            f"{count:8}{row['encode_ms']:11.1f}{row['verify_ms']:11.1f}{row['step_ms']:9.2f}"
            f"{row['step_ms'] / count:10.2f}"
        )
    print(json.dumps({"steps": rows, "dtype": engine.info.dtype, **describe()}))


if __name__ == "__main__":
    main()
