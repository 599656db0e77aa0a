"""Where benchmarks over the speech data run: options they share, and the engine these ask for."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from benchmarks.support.recordings import DATA
from engine.config import DEVICES, DTYPES, EngineConfig


def add_engine_arguments(parser: argparse.ArgumentParser, *, at_once: int = 4) -> None:
    """Add to a benchmark's options what says on which data, and by which engine."""
    default = EngineConfig()
    parser.add_argument("--model", default="base", help="short name, hub id or folder")
    parser.add_argument("--device", choices=DEVICES, default="auto")
    parser.add_argument("--dtype", choices=DTYPES, default="auto")
    parser.add_argument("--encoder-tail", default=str(default.encoder_tail), help="or full, or r")
    parser.add_argument("--tail-margin-s", type=float, default=default.tail_margin_s)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the speech data")
    parser.add_argument("--at-once", type=int, default=at_once, help="recordings")


def choose_engine(arguments: argparse.Namespace) -> EngineConfig:
    """Make the configuration that the options ask for.

    Its pools hold what is decoded at once and no more, so that many benchmarks share a GPU.
    """
    return EngineConfig(
        model=arguments.model,
        device=arguments.device,
        dtype=arguments.dtype,
        encoder_tail=read_tail(arguments.encoder_tail),
        tail_margin_s=arguments.tail_margin_s,
        max_batch=max(32, 2 * arguments.at_once),
    )


def read_tail(text: str) -> str | int:
    """Read EngineConfig.encoder_tail: a word or a factor."""
    return int(text) if text.isdigit() else text


def append_line(path: Path | None, row: object) -> None:
    """Add a line of JSON to a file, if there is one: what is done stays, whatever comes after."""
    if path is not None:
        with path.open("a") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
