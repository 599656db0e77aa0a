"""What a client of the load benchmark says: recordings with pauses, and when each of them ends."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.support.recordings import Recording
from engine.api import SAMPLE_RATE, Samples

LEAD_S, PAUSE_S = 0.5, 1.5  # of silence before the first recording, and after each


@dataclass(frozen=True, slots=True)
class Talk:
    """Audio, its text, and where in it someone stops to speak."""

    pcm: bytes  # s16le, 16 kHz
    text: str
    ends_s: tuple[float, ...]  # of speech, one for each recording


def make_talk(clips: Sequence[tuple[Recording, Samples]], seconds: float, seed: int) -> Talk:
    """Join recordings, drawn at random, until they last so long."""
    draw = random.Random(seed)
    noise = np.random.default_rng(seed)
    pieces, texts, ends, length = [_silence(noise, LEAD_S)], [], [], LEAD_S
    while length < seconds:
        recording, sound = draw.choice(clips)
        sound = trim(sound)
        pieces += [sound, _silence(noise, PAUSE_S)]
        ends.append(length + len(sound) / SAMPLE_RATE)
        length = ends[-1] + PAUSE_S
        texts.append(recording.text)
    samples = np.concatenate(pieces)
    pcm = (np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes()
    return Talk(pcm, " ".join(texts), tuple(ends))


def trim(sound: Samples) -> Samples:
    """Cut the quiet off the end, so that the end of the audio is the end of the speech."""
    frame = SAMPLE_RATE // 50
    energy = np.sqrt(np.square(sound[: len(sound) // frame * frame].reshape(-1, frame)).mean(1))
    loud = np.flatnonzero(energy > 0.05 * energy.max())
    return sound[: (int(loud[-1]) + 1) * frame] if len(loud) else sound


def _silence(noise: np.random.Generator, seconds: float) -> Samples:
    return noise.normal(0, 1e-4, int(seconds * SAMPLE_RATE)).astype(np.float32)
