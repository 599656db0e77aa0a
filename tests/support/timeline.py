"""Numbered words with the audio of them, and a recogniser that knows what is said when.

The recogniser stands in for a model where the behaviour of a session is tested: it returns the
words inside a window, misreads what the window's edge cuts, and can be told to waver.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from engine.api import (
    SAMPLE_RATE,
    Hypothesis,
    Samples,
    Segment,
    Window,
    Word,
)


@dataclass(frozen=True)
class Timeline:
    """Words and the audio of them."""

    words: tuple[Word, ...]
    samples: Samples

    @property
    def text(self) -> str:
        return "".join(word.text for word in self.words).strip()


def timeline(
    sentences: Sequence[int],
    pauses_s: Sequence[float],
    *,
    word_s: float = 0.3,
    gap_s: float = 0.06,
    stops: bool = True,
) -> Timeline:
    """Make numbered words: sentences of given lengths, each with a pause after it.

    Every word is unique ("w0", "w1" ...), so that losses and doubles show.
    """
    rng = np.random.default_rng(1)
    pieces: list[Samples] = [_room(rng, 1.0)]
    words: list[Word] = []
    position = len(pieces[0])
    for length, pause_s in zip(sentences, pauses_s, strict=True):
        for index in range(length):
            sound = _word(word_s, rng)
            stop = "." if stops and index == length - 1 else ""
            name = f" {'W' if index == 0 else 'w'}{len(words)}{stop}"
            words.append(Word(name, position, position + len(sound), 0.9))
            room = _room(rng, pause_s if index == length - 1 else gap_s)
            pieces += [sound, room]
            position += len(sound) + len(room)
    return Timeline(tuple(words), np.concatenate(pieces))


def _room(rng: np.random.Generator, seconds: float) -> Samples:
    return (1e-4 * rng.standard_normal(int(seconds * SAMPLE_RATE))).astype(np.float32)


# first three formants, Hz; each word glides from one of these to another
_FORMANTS = np.array([(700, 1200, 2500), (400, 2000, 2700), (500, 900, 2400), (300, 2200, 3000)])


def _word(seconds: float, rng: np.random.Generator) -> Samples:
    """Two syllables of gliding pitch and formants, which the speech detector takes for a voice."""
    t = np.arange(int(seconds * SAMPLE_RATE)) / SAMPLE_RATE
    u = t / seconds
    pitch = rng.uniform(142, 155) + rng.uniform(-41, 41) * np.sin(np.pi * u)
    phase = 2 * np.pi * np.cumsum(pitch) / SAMPLE_RATE
    here, there = rng.permutation(_FORMANTS)[:2] * rng.uniform(0.9, 1.1)
    formants = here + (there - here) * u[:, None]
    sound = 0.005 * rng.standard_normal(len(t))
    for harmonic in range(1, 30):
        distance = (harmonic * pitch[:, None] - formants) / np.array([160, 214, 356])
        gain = 0.01 + (np.exp(-(distance**2)) * np.array([1.0, 0.6, 0.3])).sum(axis=1)
        sound += gain * np.sin(harmonic * phase) / harmonic
    edge = np.minimum(1.0, np.minimum(t, t[-1] - t) / 0.01)
    loudness = edge * (1 - 0.7 * np.cos(4 * np.pi * u) ** 2)
    return (0.2 * sound / np.abs(sound).max() * loudness).astype(np.float32)


@dataclass
class Recogniser:
    """Writes down the words of a timeline that a window holds."""

    words: Sequence[Word]
    waver: float = 0.0  # share of the windows that misread their last two words
    invent: str = ""  # said in windows without words
    windows: list[Window] = field(default_factory=list)  # all that were asked for

    def decode(self, window: Window) -> Hypothesis:
        self.windows.append(window)
        heard = []
        for word in self.words:
            inside = min(word.end, window.end) - max(word.start, window.start)
            if inside <= 0:
                continue
            is_whole = inside == word.end - word.start
            if is_whole or inside * 2 > word.end - word.start:
                text = word.text if is_whole else word.text[:-1].rstrip(".") + "x"
                start, end = max(word.start, window.start), min(word.end, window.end)
                heard.append(Word(text, start, end, 0.9))
        seed = hashlib.sha256(f"{window.start} {window.end}".encode()).digest()[0] / 256
        if seed < self.waver and heard and heard[-1].end > window.end - SAMPLE_RATE // 5:
            heard[-2:] = [Word(w.text + "y", w.start, w.end, 0.5) for w in heard[-2:]]
        if not heard and self.invent:
            heard = [Word(self.invent, window.start, window.end, 0.3)]
        text = "".join(word.text for word in heard)
        segments = (
            (Segment(text, heard[0].start, heard[-1].end, False, tuple(heard)),) if heard else ()
        )
        return Hypothesis(
            window.start, window.end, segments, "en", 0.99, -0.2, 0.01 if heard else 0.9, 1.2
        )
