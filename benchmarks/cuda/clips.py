"""Carry recordings and the CPU's text of them to a machine with a GPU, and score what it wrote.

python -m benchmarks.cuda.clips pack clips/      here: clips.flac, clips.json
python -m benchmarks.cuda --clips clips/ ...     there, without the speech data
python -m benchmarks.cuda.clips score clips/ cuda.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import soundfile
import torch

from engine.api import SAMPLE_RATE, Samples

CATEGORIES = ("read_en", "spontaneous_en", "noisy_en", "level_en", "phone_8k", "digits_8k")


def pack(folder: Path, model: str, fold: int | None) -> None:
    """Write all English recordings of up to 30 s, and the tokens of the CPU in float32."""
    from benchmarks.support.jobs import make_job, run_jobs
    from benchmarks.support.recordings import list_recordings
    from engine.batching.counters import Counters
    from engine.batching.page_pool import PagePool
    from engine.batching.runner import EagerRunner
    from engine.batching.scheduler import Scheduler
    from engine.checkpoint.locate import resolve_model
    from engine.checkpoint.model_config import read_model_config
    from engine.checkpoint.weights import load_weights
    from engine.decoding.rules import build_rules
    from engine.decoding.tokenizer import Tokenizer
    from engine.model.sdpa import SdpaAttention
    from engine.model.whisper import Whisper

    recordings = [
        recording
        for recording in list_recordings()
        if recording.category in CATEGORIES
        and recording.language == "en"
        and recording.num_channels == 1
        and 0.5 < recording.duration_s <= 30
    ]
    pcm = [
        (recording.read()[: 30 * SAMPLE_RATE] * 32767).round().astype(np.int16)
        for recording in recordings
    ]
    files = resolve_model(model)
    config = read_model_config(files)
    tokenizer = Tokenizer(files.tokenizer, config.is_multilingual)
    cpu = torch.device("cpu")
    attention = SdpaAttention(
        config,
        num_self_pages=200,
        self_page_size=16,
        num_cross_pages=200,
        cross_page_size=50,
        dtype=torch.float32,
        device=cpu,
    )
    whisper = Whisper(config, load_weights(files, config))
    rules = build_rules(config, tokenizer)
    runner = EagerRunner(whisper, attention, rules, tokenizer, cpu, Counters())
    scheduler = Scheduler(
        PagePool(200, 16),
        PagePool(200, 50),
        max_batch=4,
        max_encode_batch=2,
        max_encode_positions=1500,
        max_waiting=1000,
    )
    jobs = [make_job(tokenizer, samples.astype(np.float32) / 32768) for samples in pcm]
    done = run_jobs(jobs, runner, scheduler, tokenizer, fold=fold, at_once=4)
    rows = [
        {"category": r.category, "text": r.text, "samples": len(samples), "tokens": s.tokens}
        for r, samples, s in zip(recordings, pcm, done, strict=True)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    soundfile.write(folder / "clips.flac", np.concatenate(pcm), SAMPLE_RATE, subtype="PCM_16")
    (folder / "clips.json").write_text(json.dumps(rows))


def read_sounds(folder: Path) -> list[Samples]:
    """Read the packed recordings: (T,) float32 each."""
    pcm, _ = soundfile.read(folder / "clips.flac", dtype="int16")
    lengths = [row["samples"] for row in json.loads((folder / "clips.json").read_text())]
    parts = np.split(pcm, np.cumsum(lengths)[:-1])
    return [part.astype(np.float32) / 32768 for part in parts]


def score(folder: Path, results: Path, model: str) -> None:
    """Print word error rates of the CPU and of what benchmarks.cuda has written."""
    from benchmarks.support.scoring import Errors, compare, normalize
    from engine.checkpoint.locate import resolve_model
    from engine.decoding.tokenizer import Tokenizer

    rows = json.loads((folder / "clips.json").read_text())
    tokenizer = Tokenizer(resolve_model(model).tokenizer, True)

    def write(tokens: list[int]) -> str:
        return tokenizer.decode(token for token in tokens if token < tokenizer.eot)

    texts = {"CPU float32": [row["tokens"] for row in rows]}
    texts |= json.loads(results.read_text())["texts"]
    first = [write(tokens) for tokens in texts["CPU float32"]]
    for name, tokens_of in texts.items():
        errors, same = Errors(), 0
        for row, tokens, reference in zip(rows, tokens_of, first, strict=True):
            text, digits = write(tokens), row["category"] == "digits_8k"
            errors += compare(
                normalize(row["text"], "en", digits=digits), normalize(text, "en", digits=digits)
            )
            same += text == reference
        print(f"{name:24} {errors.rate:6.2f} %  {same} of {len(rows)} texts as the CPU's")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("verb", choices=("pack", "score"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("results", type=Path, nargs="?")
    parser.add_argument("--model", default="base")
    parser.add_argument("--fold", type=int, default=25)
    arguments = parser.parse_args()
    if arguments.verb == "pack":
        pack(arguments.folder, arguments.model, arguments.fold)
    else:
        score(arguments.folder, arguments.results, arguments.model)
