"""When was each word first shown right, and when settled? Which shown words changed later?

Works on the events of one channel and the word times of a reference, whether the clock was real
or simulated.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher

import numpy as np

from benchmarks.support.simulation import Told
from engine.api import SAMPLE_RATE, Word
from streamer.transcription.events import Final, Partial, SpeechEnded
from streamer.transcription.word import key, split


@dataclass(slots=True)
class Delays:
    """Samples in seconds, and counts; add up over recordings."""

    shown_s: list[float] = field(default_factory=list)  # end of a word to its first right showing
    settled_s: list[float] = field(default_factory=list)  # ... to its place in settled text
    final_s: list[float] = field(default_factory=list)  # end of speech to the Final
    num_shown: int = 0  # words shown, each time that one appears
    num_changed: int = 0  # ... that are not in the Final
    num_held: int = 0  # words shown by two partials in a row
    num_held_changed: int = 0  # ... that are not in the Final
    num_shrunk: int = 0  # partials shorter than the one before by more than 3 words

    def add(self, other: Delays) -> None:
        self.shown_s += other.shown_s
        self.settled_s += other.settled_s
        self.final_s += other.final_s
        self.num_shown += other.num_shown
        self.num_changed += other.num_changed
        self.num_held += other.num_held
        self.num_held_changed += other.num_held_changed
        self.num_shrunk += other.num_shrunk


def percentile(values: Sequence[float], percent: float) -> float:
    return float(np.percentile(values, percent)) if values else float("nan")


def measure(told: Iterable[Told], reference: Sequence[Word]) -> Delays:
    """Measure the events of one recording, played from time 0 at the pace of real time."""
    delays = Delays()
    final_keys: list[str] = []
    shown_at: dict[int, float] = {}  # by number of the word in all Finals
    settled_at: dict[int, float] = {}
    partials: dict[int, list[Told]] = defaultdict(list)
    speech_end: dict[int, int] = {}
    for each in told:
        match each.event:
            case SpeechEnded(segment=segment, end=end):
                speech_end[segment] = end
            case Partial(segment=segment):
                partials[segment].append(each)
            case Final(segment=segment, text=text):
                keys = _keys(text)
                history = [*partials.pop(segment, []), each]
                _follow(history, keys, len(final_keys), shown_at, settled_at, delays)
                final_keys += keys
                if segment in speech_end and keys:
                    delays.final_s.append(each.at - speech_end[segment] / SAMPLE_RATE)
    matcher = SequenceMatcher(None, [key(w.text) for w in reference], final_keys, autojunk=False)
    for first, number, length in matcher.get_matching_blocks():
        for i in range(length):
            end_s = reference[first + i].end / SAMPLE_RATE
            delays.shown_s.append(shown_at[number + i] - end_s)
            delays.settled_s.append(settled_at[number + i] - end_s)
    return delays


def _keys(text: str) -> list[str]:
    return [key(word) for word in split(text) if key(word)]


def _follow(
    history: list[Told],
    final: list[str],
    first: int,
    shown_at: dict[int, float],
    settled_at: dict[int, float],
    delays: Delays,
) -> None:
    """Go through what was told of one segment, the Final last."""
    before: list[str] = []
    for told in history:
        if isinstance(told.event, Partial):
            settled = _keys(told.event.settled)
            keys = settled + _keys(told.event.volatile)
        else:
            settled = keys = final
        right = _matched(keys, final)
        for index, number in right.items():
            shown_at.setdefault(first + number, told.at)
            if index < len(settled):
                settled_at.setdefault(first + number, told.at)
        if isinstance(told.event, Partial):
            held = _matched(keys, before)
            delays.num_shown += len(keys) - len(held)
            delays.num_changed += sum(i not in right for i in range(len(keys)) if i not in held)
            delays.num_held += len(held)
            delays.num_held_changed += sum(i not in right for i in held)
            delays.num_shrunk += len(before) - len(keys) > 3
        before = keys


def _matched(words: list[str], others: list[str]) -> dict[int, int]:
    """Map the words that are in both texts, in order: number in the one to that in the other."""
    matcher = SequenceMatcher(None, words, others, autojunk=False)
    return {
        block.a + i: block.b + i
        for block in matcher.get_matching_blocks()
        for i in range(block.size)
    }
