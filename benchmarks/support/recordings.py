"""The speech data that benchmarks run on: rows of its manifest, decoded."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from engine.api import SAMPLE_RATE, Samples
from streamer.audio import container

DATA = Path(__file__).parents[3] / "shared/data/speech"
SILENT = ("nonspeech", "singing")  # categories in which nobody speaks
SHIFT = 560  # 35 ms: no whole number of the encoder's positions of 20 ms


@dataclass(frozen=True, slots=True)
class Recording:
    """One channel of a recording."""

    name: str
    category: str
    language: str
    text: str  # what is said; "" where nobody speaks
    path: Path
    channel: int
    num_channels: int
    duration_s: float

    @property
    def is_digits(self) -> bool:
        """Numbers are spelt out one by one, and may be grouped in any way."""
        return self.category == "digits_8k" or "ivr" in self.name

    def read(self, limit_s: float | None = None) -> Samples:
        """Decode to (T,) float32, 16 kHz."""
        blocks: list[Samples] = []
        length = 0
        limit = None if limit_s is None else int(limit_s * SAMPLE_RATE)
        with self.path.open("rb") as file:
            for block in container.decode(file, channels=self.num_channels):
                blocks.append(block[self.channel])
                length += len(block[self.channel])
                if limit is not None and length >= limit:
                    break
        return np.concatenate(blocks)[:limit] if blocks else np.zeros(0, np.float32)


def shift(samples: Samples, number: int) -> Samples:
    """Put a little silence before the audio, (T,) -> (T + number * SHIFT,).

    One text hangs on rounding; the mean of several does not.
    """
    return np.concatenate([np.zeros(number * SHIFT, np.float32), samples])


async def blocks_of(samples: Samples) -> AsyncIterator[Samples]:
    """Hand a recording over in blocks of 10 s, as an upload is decoded."""
    for start in range(0, len(samples), 10 * SAMPLE_RATE):
        yield samples[start : start + 10 * SAMPLE_RATE]


def list_recordings(data: Path = DATA) -> list[Recording]:
    """List all recordings of speech and of its absence; each channel of a call is one."""
    recordings = []
    for line in (data / "manifest.jsonl").read_text().splitlines():
        row = json.loads(line)
        if row["category"] in ("container", "corrupt"):
            continue
        is_call = row["category"] == "call_2ch"
        for channel in range(2 if is_call else 1):
            recordings.append(
                Recording(
                    name=row["file"] + (f"#{channel}" if is_call else ""),
                    category=row["category"],
                    language=row["language"],
                    text=row["channel_texts"][channel] if is_call else row["text"],
                    path=data / row["file"],
                    channel=channel,
                    num_channels=2 if is_call else 1,
                    duration_s=row["duration_s"],
                )
            )
    return recordings


def sample(recordings: list[Recording], minutes: float) -> list[Recording]:
    """Choose about `minutes` of each category, evenly from its whole list."""
    by_category = defaultdict(list)
    for recording in recordings:
        by_category[recording.category].append(recording)
    chosen = []
    for group in by_category.values():
        wanted = minutes * 60 / max(1.0, sum(r.duration_s for r in group))
        taken = 0.0
        for index, recording in enumerate(group):
            # the running total keeps step with the share that is wanted
            if taken < wanted * (index + 1) or not taken:
                chosen.append(recording)
                taken += 1.0
    return chosen
