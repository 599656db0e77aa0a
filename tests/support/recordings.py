"""Recordings of the speech data, with what is said in them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

SPEECH = Path(__file__).parents[3] / "shared/data/speech"


@dataclass(frozen=True, slots=True)
class Recording:
    """A row of the speech data's manifest."""

    path: Path
    text: str
    language: str  # "" where nobody speaks
    category: str
    duration_s: float
    sample_rate: int
    num_channels: int

    def read(self) -> npt.NDArray[np.float32]:
        """Decode to mono float32 at 16 kHz, (T,)."""
        soundfile = pytest.importorskip("soundfile")
        soxr = pytest.importorskip("soxr")
        samples, rate = soundfile.read(self.path, dtype="float32", always_2d=True)
        mono = samples.mean(axis=1)
        if rate != 16_000:
            mono = soxr.resample(mono, rate, 16_000)
        return np.ascontiguousarray(mono, dtype=np.float32)


def read_manifest() -> list[Recording]:
    """Read all recordings of the speech data, in the manifest's order."""
    manifest = SPEECH / "manifest.jsonl"
    if not manifest.is_file():
        pytest.skip("the speech data is not on this machine")
    rows = [json.loads(line) for line in manifest.read_text().splitlines()]
    return [
        Recording(
            SPEECH / row["file"],
            row["text"],
            row["language"],
            row["category"],
            row["duration_s"],
            row["sample_rate"],
            row["channels"],
        )
        for row in rows
    ]
