"""Sentences spoken by espeak-ng, joined into scenes whose times are known."""

from __future__ import annotations

import io
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
import soundfile
import soxr

from engine.api import SAMPLE_RATE, Samples

SENTENCES = (
    "The harbor was quiet when the first boats came home.",
    "She wrote three long letters to her brother in Canada.",
    "Nobody expected the old bridge to survive the winter.",
    "We should bring water and bread for the whole group.",
    "The doctor asked him to rest for at least two weeks.",
    "A large yellow truck stopped in front of the library.",
)


@dataclass(frozen=True)
class Scene:
    """Audio, and where its sentences are."""

    samples: Samples
    starts: tuple[int, ...]  # of the sentences, in samples
    ends: tuple[int, ...]


@cache
def say(text: str, voice: str = "en-us", speed: int = 150) -> Samples:
    """Speak a text: (T,) float32, 16 kHz, without silence at its ends."""
    if shutil.which("espeak-ng") is None:
        pytest.skip("espeak-ng is not installed")
    command = ["espeak-ng", "-v", voice, "-s", str(speed), "--stdout", text]
    wav = subprocess.run(command, capture_output=True, check=True).stdout
    samples, rate = soundfile.read(io.BytesIO(wav), dtype="float32")
    samples = soxr.resample(samples, rate, SAMPLE_RATE).astype(np.float32)
    loud = np.flatnonzero(np.abs(samples) > 0.01)
    spoken: Samples = samples[loud[0] : loud[-1]] * np.float32(0.7)
    return spoken


def scene(pieces: Sequence[Samples], gaps_s: Sequence[float], lead_s: float = 0.5) -> Scene:
    """Put pieces one after the other, each with a gap behind it, in a quiet room."""
    starts, ends, position = [], [], int(lead_s * SAMPLE_RATE)
    for piece, gap_s in zip(pieces, gaps_s, strict=True):
        starts.append(position)
        ends.append(position + len(piece))
        position += len(piece) + int(gap_s * SAMPLE_RATE)
    samples = (1e-4 * np.random.default_rng(0).standard_normal(position)).astype(np.float32)
    for piece, start in zip(pieces, starts, strict=True):
        samples[start : start + len(piece)] += piece
    return Scene(samples, tuple(starts), tuple(ends))


def squeeze(samples: Samples, longest_s: float = 0.06) -> Samples:
    """Shorten all pauses to `longest_s`, so that speech has none left to cut at."""
    grain = SAMPLE_RATE // 100
    grains = samples[: len(samples) // grain * grain].reshape(-1, grain)
    is_quiet = np.abs(grains).max(axis=1) < 0.01
    kept, run = [], 0
    for index, quiet in enumerate(is_quiet):
        run = run + 1 if quiet else 0
        if run * 0.01 <= longest_s:
            kept.append(index)
    squeezed: Samples = grains[kept].ravel()
    return squeezed
