"""Is the engine right on a GPU, and how fast? One script for all that docs/performance.md says.

    python -m benchmarks.cuda --model FOLDER --clips FOLDER --out cuda.json

Large models have their true shapes and random weights. FOLDER holds Whisper base and, in the other,
what `benchmarks.cuda.clips pack` wrote; without them, what needs real weights is left out.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from engine.cuda.startup import check_device, round_alike

round_alike()  # before cuBLAS computes anything


@dataclass(frozen=True, slots=True)
class Options:
    model: Path | None
    clips: Path | None
    tokenizer: Path
    seconds: float  # of each step of the live load
    churn_s: float


def measure_ceilings(options: Options) -> Any:
    """Measure what the GPU can do at most: bytes copied, and bfloat16 products."""
    from benchmarks.cuda.decode import measure_us

    source = torch.randint(0, 255, (2 << 30,), dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    copy_us = measure_us(lambda: target.copy_(source), 7)
    a, b = (torch.randn(8192, 8192, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    product_us = measure_us(lambda: a @ b, 7)
    return {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "copy_tb_per_s": round(2 * len(source) / copy_us / 1e6, 2),
        "bf16_tflops": round(2 * 8192**3 / product_us / 1e6),
    }


def run_decode(options: Options) -> Any:
    from benchmarks.cuda.decode import time_passes

    rows = []
    for name, batches in (
        ("large-v3", [1, 8, 32, 128]),
        ("large-v3-turbo", [1, 8, 32, 64, 128, 256]),
        ("small", [1, 8, 32, 128]),
        ("base", [1, 8, 32, 128, 256]),
    ):
        rows += time_passes(name, batches, [1500, 500], 4.3e12)
        release()
    return rows


def run_encode(options: Options) -> Any:
    from benchmarks.cuda.encode import encode_table

    return {
        "bf16": encode_table([1, 2, 4, 8, 16, 32, 64]),
        "fp8": encode_table([1, 4, 16, 32, 64], uses_fp8=True),
    }


def run_graphs(options: Options) -> Any:
    from benchmarks.cuda.text import compare_graphs

    return compare_graphs(load_tokenizer(options), 1000)


def run_text(options: Options) -> Any:
    """Decode all clips, in bf16 and fp8; then windows of them, each alone and in crowds."""
    from benchmarks.cuda.clips import read_sounds
    from benchmarks.cuda.text import DEVICE, DTYPE, compare_neighbours, set_up
    from benchmarks.support.jobs import make_job
    from engine.checkpoint.locate import resolve_model
    from engine.checkpoint.model_config import read_model_config
    from engine.checkpoint.weights import load_weights

    assert options.model is not None and options.clips is not None
    files = resolve_model(str(options.model))
    config = read_model_config(files)
    tokenizer = load_tokenizer(options)
    sounds = read_sounds(options.clips)
    jobs = [make_job(tokenizer, sound) for sound in sounds]
    result: dict[str, Any] = {"texts": {}}
    for name, fold, uses_fp8 in (
        ("GPU bf16, folded", 25, False),
        ("GPU bf16, full", None, False),
        ("GPU fp8, folded", 25, True),
    ):
        weights = load_weights(files, config, DTYPE, DEVICE)
        setup = set_up(config, weights, tokenizer, fold=fold, uses_fp8=uses_fp8)
        began = time.perf_counter()
        result["texts"][name] = setup.decode(jobs, 64)
        result[f"seconds, {name}"] = round(time.perf_counter() - began, 2)
        if fold and not uses_fp8:
            result["neighbours"] = compare_neighbours(setup, sounds, 1000)
        del setup
        release()
    return result


def run_engine(options: Options) -> Any:
    from benchmarks.cuda.clips import read_sounds
    from benchmarks.cuda.engine import compare_drafts

    assert options.model is not None and options.clips is not None
    return compare_drafts(str(options.model), read_sounds(options.clips))


def run_requests(options: Options) -> Any:
    """Serve whole requests at several concurrencies: two effects, and the peer."""
    from benchmarks.cuda.live import set_up, time_requests
    from benchmarks.cuda.peer import time_peer
    from engine.cuda.build import Limits

    tokenizer = load_tokenizer(options)
    counts = [1, 8, 32, 128]
    table: dict[str, Any] = {}
    for uses_graphs in (True, False):
        limits = Limits(128, 512, 8, 12_288, None, uses_graphs=uses_graphs)
        setup = set_up("large-v3", tokenizer, limits)
        time_requests(setup, 2, 2, serial=False)
        for serial in (False, True):
            name = "graphs" if uses_graphs else "eager"
            name += ", encoder one by one" if serial else ", encoder batched"
            table[name] = [
                time_requests(setup, n, max(2 * n, 4) if uses_graphs else max(n, 2), serial=serial)
                for n in counts
                if uses_graphs or not serial
            ]
            print(name, table[name], flush=True)
        del setup
        release()
    table["transformers generate"] = time_peer("large-v3", counts)
    return table


def run_live(options: Options) -> Any:
    """Find how many streams of large-v3-turbo are served at a window a second each."""
    from benchmarks.cuda.live import AT_EASE, RUSHED, find_capacity, measure_stream, set_up
    from engine.cuda.build import Limits

    result: dict[str, Any] = {}
    counts = [500, 700, 800, 900, 1000, 1200, 1400]
    for uses_fp8 in (False, True):
        limits = Limits(512, 1024, 40, 16_384, 25)
        setup = set_up("large-v3-turbo", load_tokenizer(options), limits, uses_fp8=uses_fp8)
        name = "fp8" if uses_fp8 else "bf16"
        result[name] = find_capacity(setup, counts, options.seconds, AT_EASE)
        result[f"{name}, rushed"] = find_capacity(setup, counts[2:], options.seconds, RUSHED)
        graphs = setup.runner._graphs
        result[f"{name} passes"] = {"replayed": graphs.num_replays, "eager": graphs.num_eager}
        result["mb_per_decoding_stream_of_30_s"] = measure_stream(setup)
        del graphs, setup
        release()
    return result


def run_churn(options: Options) -> Any:
    """Let streams of base come and go, and watch memory: benchmarks.cuda.churn, with the clips."""
    from benchmarks.cuda.churn import churn, summarise
    from benchmarks.cuda.clips import read_sounds
    from engine.config import EngineConfig
    from engine.local import load_engine

    assert options.model is not None and options.clips is not None
    engine = load_engine(EngineConfig(model=str(options.model), device="cuda", max_batch=96))
    try:
        sounds = read_sounds(options.clips)
        rows = asyncio.run(churn(engine, sounds, 48, options.churn_s, print))
        time.sleep(1.0)  # the engine's thread lets go of what was left last
        return summarise(rows, engine.num_pages - engine.num_free_pages)
    finally:
        engine.close()


def run_sanitizer(options: Options) -> Any:
    """Let compute-sanitizer look for stray accesses while the kernels' tests run."""
    program = shutil.which("compute-sanitizer")
    if program is None:
        return "compute-sanitizer is not installed"
    names = ("linear", "layers", "paged_attention", "sampler", "quantise", "fp8")
    tests = [f"tests/engine/cuda/test_{name}.py" for name in names]
    command = [program, "--tool", "memcheck", "--error-exitcode", "9", sys.executable]
    # without the project's settings, whose plugins a machine with a GPU may lack
    command += ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", "."]
    command += ["--import-mode=importlib", "-o", "pythonpath=.", *tests]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    return {"exit": done.returncode, "end": (done.stdout + done.stderr)[-600:]}


def load_tokenizer(options: Options) -> Any:
    from engine.decoding.tokenizer import Tokenizer

    return Tokenizer(options.tokenizer, True)


def release() -> None:
    """Free memory between stages."""
    gc.collect()
    torch.cuda.empty_cache()


STAGES: dict[str, Callable[[Options], Any]] = {
    "ceilings": measure_ceilings,
    "graphs": run_graphs,
    "text": run_text,
    "engine": run_engine,
    "decode": run_decode,
    "encode": run_encode,
    "live": run_live,
    "churn": run_churn,
    "requests": run_requests,
    "sanitizer": run_sanitizer,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="folder of Whisper base, for real text")
    parser.add_argument("--clips", type=Path, help="folder that benchmarks.cuda.clips wrote")
    parser.add_argument("--tokenizer", type=Path, help="tokenizer.json of base")
    parser.add_argument("--only", default=",".join(STAGES), help="stages, joined by commas")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each live load")
    parser.add_argument("--churn", type=float, default=600.0, help="seconds of the memory test")
    parser.add_argument("--out", type=Path, default=Path("cuda.json"))
    given = parser.parse_args()
    tokenizer = given.tokenizer or (given.model / "tokenizer.json")
    options = Options(given.model, given.clips, tokenizer, given.seconds, given.churn)
    check_device(torch.device("cuda"))
    results: dict[str, Any] = {}
    for name in given.only.split(","):
        if name in ("text", "engine", "churn") and not (given.model and given.clips):
            continue
        began = time.perf_counter()
        try:
            results[name] = STAGES[name](options)
        except Exception:  # the next stage's figures are wanted all the same
            results[name] = {"error": traceback.format_exc()}
            print(results[name]["error"], flush=True)
        release()
        print(f"{name}: {time.perf_counter() - began:.1f} s", flush=True)
        texts = results.get("text", {}).get("texts", {}) if "text" in results else {}
        given.out.write_text(json.dumps({"texts": texts, **results}, default=str))
    results.pop("text", None)
    print(json.dumps(results, default=str))


if __name__ == "__main__":
    main()
