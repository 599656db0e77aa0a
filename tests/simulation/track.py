"""Audio that says what it holds: each sample of a word carries the word's number.

A recogniser that reads the numbers back hears what is in a window and not what should be, so audio
that is dropped, doubled or out of place shows in the text, and a window made of several stretches
is read like any other. Speech and silence lie in the samples, too: positive ones are speech to the
stand-in of the speech detector.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from unittest import mock

import numpy as np

from engine.api import Samples
from streamer.vad.detector import FRAME, SpeechDetector

SCALE = 32_768  # of 16-bit samples: the numbers survive a wire
NOISE = 300  # voiced, but no word
FIRST_WORD = 1_024  # the number of word 0


@dataclass(frozen=True, slots=True)
class Spoken:
    """One word, and the quiet behind it; lengths in samples."""

    text: str  # without spaces; "" is a noise that the detector takes for speech
    length: int
    gap: int
    num_soft: int = 0  # samples at the beginning that the detector does not notice


def make_audio(words: Sequence[Spoken], lead: int) -> Samples:
    """Render words behind `lead` samples of quiet, (T,) float32."""
    pieces = [np.zeros(lead, np.float32)]
    for number, word in enumerate(words):
        level = (FIRST_WORD + number if word.text else NOISE) / SCALE
        sound = np.full(word.length, level, np.float32)
        sound[: word.num_soft] = -level
        pieces += [sound, np.zeros(word.gap, np.float32)]
    return np.concatenate(pieces)


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of a word, or all of it, inside a piece of audio."""

    number: int  # of the word
    start: int
    end: int


def read_audio(audio: Samples) -> list[Stretch]:
    """List the words, or parts of words, in a piece of audio, in their order."""
    edges = np.flatnonzero(audio[1:] != audio[:-1]) + 1
    starts = np.concatenate([[0], edges])
    numbers = np.abs(np.rint(audio[starts] * SCALE)).astype(int) - FIRST_WORD
    ends = [*edges.tolist(), len(audio)]
    found: list[Stretch] = []
    for number, start, end in zip(numbers.tolist(), starts.tolist(), ends, strict=True):
        if number < 0:
            continue
        if found and found[-1].number == number and found[-1].end == start:
            found[-1] = Stretch(number, found[-1].start, end)
        else:
            found.append(Stretch(number, start, end))
    return found


class LevelDetector(SpeechDetector):
    """Takes a frame for speech if half of its samples are positive; costs next to nothing."""

    def __init__(self, threshold: float) -> None:
        self._takes_all = threshold == 0
        self._rest: Samples = np.zeros(0, np.float32)

    def detect(self, samples: Samples) -> list[bool]:
        if len(self._rest):
            samples = np.concatenate([self._rest, samples])
        num_frames = len(samples) // FRAME
        self._rest = samples[num_frames * FRAME :]
        if num_frames == 0:
            return []
        if self._takes_all:
            return [True] * num_frames
        frames = (samples[: num_frames * FRAME] > 0).reshape(num_frames, FRAME)
        return [2 * np.count_nonzero(frame) >= FRAME for frame in frames]


@contextlib.contextmanager
def listening_by_level() -> Iterator[None]:
    """Put `LevelDetector` in the place of the neural network, wherever a detector is built."""
    with (
        mock.patch.object(SpeechDetector, "__init__", LevelDetector.__init__),
        mock.patch.object(SpeechDetector, "detect", LevelDetector.detect),
        mock.patch.object(SpeechDetector, "_takes_all", False, create=True),
    ):
        yield
