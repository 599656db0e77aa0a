"""How much does one GPU serve: whole requests, and streams in real time, with the engine alone?

Models have true shapes and random weights, so texts mean nothing: how many tokens a window has,
and how many of them a draft has right, is drawn from real streams (benchmarks/record_windows.py).
A window whose draft of d tokens is checked and that then takes s passes is played as a prefix of
d more tokens and s sampled ones, which costs the same.
"""

from __future__ import annotations

import json
import random
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from benchmarks.cuda.decode import Result
from benchmarks.support.jobs import Job, run_jobs
from benchmarks.support.random_model import make_config, make_weights
from engine.api import SAMPLE_RATE, EngineBusy, Samples
from engine.batching.counters import Counters
from engine.batching.device_encoder import InFlight
from engine.batching.page_pool import PagePool
from engine.batching.scheduler import ADMIT_ALL, ADMIT_NONE, Encode, Scheduler
from engine.batching.sequence import Sequence
from engine.cuda.build import Limits, PoolSizes, build_model, build_runner
from engine.cuda.runner import CudaRunner
from engine.decoding.rules import Rules, build_rules
from engine.decoding.tokenizer import Tokenizer
from engine.model.folded_tail import choose_positions

# what streams ask for at ease, and what they ask for where an answer takes long
AT_EASE, RUSHED = (
    Path(__file__).parents[1] / "support" / name
    for name in ("live_windows.json", "live_windows_rushed.json")
)
FOLD, MARGIN = 25, 25  # EngineConfig.encoder_tail, .tail_margin_s in positions
DEVICE, DTYPE = torch.device("cuda"), torch.bfloat16


@dataclass(frozen=True, slots=True)
class Setup:
    """A runner of a random model, and what drives it."""

    name: str
    runner: CudaRunner
    tokenizer: Tokenizer
    sizes: PoolSizes
    limits: Limits
    counters: Counters

    def make_scheduler(self, max_encode_windows: int | None = None) -> Scheduler:
        sizes, limits = self.sizes, self.limits
        return Scheduler(
            PagePool(sizes.num_self_pages, sizes.self_page_size, in_runs=False),
            PagePool(sizes.num_cross_pages, sizes.cross_page_size, in_runs=False),
            max_batch=limits.max_batch,
            max_encode_batch=max_encode_windows or limits.max_encode_windows,
            max_encode_positions=limits.max_encode_positions,
            max_waiting=100_000,
        )


def set_up(name: str, tokenizer: Tokenizer, limits: Limits, *, uses_fp8: bool = False) -> Setup:
    """Build a runner whose texts never end by themselves."""
    config = make_config(name)
    weights = make_weights(config, DTYPE, DEVICE)
    suppress = [*config.suppress_tokens, tokenizer.eot]
    rules = build_rules(config, tokenizer, device=DEVICE)
    rules = Rules(
        config.vocab_size, rules.eot, rules.timestamp_begin, suppress=suppress, device=DEVICE
    )
    sizes = PoolSizes(28 * limits.max_batch, 16, 30 * limits.max_batch, 50)
    counters = Counters()
    model = build_model(config, weights, uses_fp8=uses_fp8)
    runner = build_runner(model, rules, tokenizer, counters, sizes, limits, DTYPE, DEVICE)
    return Setup(name, runner, tokenizer, sizes, limits, counters)


def make_prefix(tokenizer: Tokenizer, more: int = 0) -> tuple[int, ...]:
    language = next(iter(tokenizer.languages.values()))
    assert tokenizer.transcribe is not None
    return (tokenizer.sot, language, tokenizer.transcribe, *range(1000, 1000 + more))


def time_requests(setup: Setup, concurrency: int, num_jobs: int, *, serial: bool) -> Result:
    """Run whole requests: windows of 30 s, 100 tokens each, several at once."""
    noise = np.random.default_rng(1).standard_normal(30 * SAMPLE_RATE).astype(np.float32) * 0.1
    # at temperature 1 a random model does not loop
    job = Job(noise, make_prefix(setup.tokenizer), 0, 100, temperature=1.0)
    torch.cuda.synchronize()
    began = time.perf_counter()
    run_jobs(
        [job] * num_jobs,
        setup.runner,
        setup.make_scheduler(1 if serial else None),
        setup.tokenizer,
        fold=None,
        at_once=concurrency,
        eagerness=1.0,
    )
    torch.cuda.synchronize()
    seconds = time.perf_counter() - began
    return {"concurrency": concurrency, "requests_per_s": round(num_jobs / seconds, 2)}


@dataclass(frozen=True, slots=True)
class Drawn:
    """A window of a real stream."""

    seconds: float
    is_final: bool
    prefix: int
    drafted: int
    steps: int


def read_windows(path: Path) -> list[Drawn]:
    """Read what record_windows has written."""
    table = json.loads(path.read_text())["windows"]
    return [
        Drawn(seconds, bool(is_final), prefix, drafted, max(steps, 1))
        for seconds, is_final, prefix, _, drafted, steps in table
    ]


@dataclass(slots=True)
class Load:
    """Streams that each ask for a window a second."""

    setup: Setup
    num_streams: int
    drawn: list[Drawn]
    seconds: float
    latencies: list[float] = field(default_factory=list)  # of windows, in seconds
    num_finals: int = 0
    final_latencies: list[float] = field(default_factory=list)
    num_skipped: int = 0  # windows that were due while the one before was not done

    def run(self) -> Result:
        setup, draw = self.setup, random.Random(1)
        noise = np.random.default_rng(1).standard_normal(30 * SAMPLE_RATE).astype(np.float32)
        noise *= 0.1
        scheduler, runner = setup.make_scheduler(), setup.runner
        began = time.perf_counter()
        # each stream at its own moment of the second, and at its own place in the table
        due = [began + draw.random() for _ in range(self.num_streams)]
        places = [draw.randrange(len(self.drawn)) for _ in due]
        order = sorted(range(self.num_streams), key=lambda n: due[n])
        open_: dict[int, tuple[Sequence, float, bool]] = {}  # by stream
        sounds: dict[int, Samples] = {}
        by_id: dict[int, int] = {}
        at, round_start, next_id = 0, 0.0, 0
        encoding: InFlight | None = None
        while True:
            now = time.perf_counter()
            is_over = now > began + self.seconds
            if is_over and not open_:
                break
            while not is_over:
                stream = order[at]
                moment = due[stream] + round_start
                if moment > now:
                    break
                at += 1
                if at == len(order):
                    at, round_start = 0, round_start + 1.0
                if stream in open_:
                    self.num_skipped += 1
                    continue
                window = self.drawn[places[stream]]
                places[stream] = (places[stream] + 1) % len(self.drawn)
                sequence = self._make(next_id, stream, window, moment)
                next_id += 1
                try:
                    scheduler.add(sequence)
                except EngineBusy:
                    self.num_skipped += 1
                    continue
                length = max(int(window.seconds * SAMPLE_RATE), 1)
                first = draw.randrange(len(noise) - length + 1)
                sounds[sequence.id] = noise[first : first + length]
                open_[stream] = (sequence, moment, window.is_final)
                by_id[sequence.id] = stream
            is_free = encoding is None or encoding.is_over()
            work = scheduler.next(ADMIT_ALL if is_free else ADMIT_NONE)
            if work is None:
                time.sleep(0.0002)
                continue
            if isinstance(work, Encode):
                encoding = runner.encode(work.sequences, [sounds.pop(s.id) for s in work.sequences])
                continue
            runner.step(work.sequences)
            now = time.perf_counter()
            for sequence in work.sequences:
                if sequence.is_stopped:
                    _, moment, is_final = open_.pop(by_id.pop(sequence.id))
                    scheduler.release(sequence)
                    runner.forget(sequence)
                    if moment > began + 2.0:  # warmed up
                        (self.final_latencies if is_final else self.latencies).append(now - moment)
        return self._report()

    def _make(self, id: int, stream: int, window: Drawn, moment: float) -> Sequence:
        prefix = make_prefix(self.setup.tokenizer, window.drafted + max(window.prefix - 3, 0))
        return Sequence(
            id=id,
            stream_id=stream,
            is_final=window.is_final,
            deadline=moment + 1.0,
            kept=choose_positions(
                max(int(window.seconds * SAMPLE_RATE), 1), factor=FOLD, margin=MARGIN
            ),
            prefix=list(prefix),
            max_tokens=window.steps,
            sot_index=0,
            temperature=1.0,
        )

    def _report(self) -> Result:
        times = sorted(self.latencies + self.final_latencies)
        finals = sorted(self.final_latencies) or [0.0]
        due = len(times) + self.num_skipped
        return {
            "streams": self.num_streams,
            "windows": len(times),
            "p50_ms": round(statistics.median(times) * 1000, 1),
            "p95_ms": round(times[int(0.95 * len(times))] * 1000, 1),
            "final_p95_ms": round(finals[int(0.95 * len(finals))] * 1000, 1),
            "skipped_percent": round(100 * self.num_skipped / max(due, 1), 2),
        }


def find_capacity(setup: Setup, counts: list[int], seconds: float, windows: Path) -> list[Result]:
    """Serve more and more streams until p95 is far above 500 ms."""
    results: list[Result] = []
    drawn = read_windows(windows)
    for count in counts:
        result = Load(setup, count, drawn, seconds).run()
        result["mean_s"] = round(statistics.mean(window.seconds for window in drawn), 2)
        results.append(result)
        print(result, flush=True)
        if float(result["p95_ms"]) > 700 or float(result["skipped_percent"]) > 20:
            break
    return results


def measure_stream(setup: Setup) -> float:
    """Return the MB that a stream holds while 30 s are decoded; an idle one holds none."""
    config = make_config(setup.name)
    window = config.cross_kv_bytes_per_position(2) * config.max_source_positions
    text = config.self_kv_bytes_per_token(2) * config.max_target_positions
    return round((window + text) / 1e6, 1)
