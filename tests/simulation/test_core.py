"""Histories of the pure core, and that the simulator tells a fault from none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from unittest import mock

import numpy as np
import pytest

from engine.api import Window
from streamer.transcription.stability import Transcript
from tests.simulation.core import run_core
from tests.simulation.history import History, make_history
from tests.simulation.properties import Violation
from tests.simulation.script import Script, plain
from tests.simulation.shrink import failure_of, kind_of, shrink
from tests.simulation.track import (
    SCALE,
    Spoken,
    Stretch,
    listening_by_level,
    make_audio,
    read_audio,
)

BLOCK = 30  # seeds a test


@pytest.fixture(autouse=True)
def by_level() -> Iterator[None]:
    with listening_by_level():
        yield


@pytest.mark.parametrize("first", range(0, 300, BLOCK))
def test_every_word_arrives_once_and_in_order(first: int) -> None:
    for seed in range(first, first + BLOCK):
        history = make_history(seed)
        error = failure_of(run_core, history)
        assert error is None, (
            f"{error}\nrun: python -m tests.simulation --first {seed} --seeds 1\n"
            f"{history.describe()}"
        )


def test_a_seed_is_one_history() -> None:
    for seed in range(5):
        assert make_history(seed) == make_history(seed)
        assert run_core(make_history(seed)) == run_core(make_history(seed))


def test_audio_says_what_it_holds() -> None:
    words = (Spoken("a", 500, 100, 200), Spoken("", 400, 0), Spoken("b", 300, 50))
    audio = make_audio(words, 64)
    assert read_audio(audio) == [Stretch(0, 64, 564), Stretch(2, 1_064, 1_364)]
    assert read_audio(audio[300:1_200]) == [Stretch(0, 0, 264), Stretch(2, 764, 900)]
    sent = np.round(audio * SCALE).astype("<i2")
    assert read_audio(sent.astype(np.float32) / SCALE) == read_audio(audio)


def test_a_word_that_an_edge_cuts_is_misread_and_counts_as_the_same() -> None:
    history = make_history(1)
    word = history.words[0]
    audio = make_audio(history.words, history.lead)
    window = Window(0, audio[: history.lead + word.length - 10], is_final=True)
    text = Script(history).read(window, "en").text
    assert text.rstrip("y").endswith("x") and plain(text) == [word.text.rstrip(".")]


def _settle_one_too_many(self: Transcript, count: int) -> None:
    _settle(self, min(len(self.volatile), count + 1))


def _lose_one(self: Transcript, num_words: int) -> None:
    _slide(self, num_words)
    del self.settled[-1:]


_settle, _slide = Transcript._settle, Transcript.slide


@pytest.mark.parametrize(
    ("name", "broken", "expected"),
    [
        ("_settle", _settle_one_too_many, "Violation words settled"),
        ("slide", _lose_one, "Violation lost"),
    ],
)
def test_a_core_that_is_broken_is_found_and_its_history_made_small(
    name: str, broken: Callable[..., None], expected: str
) -> None:
    with mock.patch.object(Transcript, name, broken):
        found: list[History] = []
        for seed in range(40):
            error = failure_of(run_core, make_history(seed))
            if error is not None and kind_of(error).startswith(expected):
                found.append(make_history(seed))
        assert found
        error = failure_of(run_core, found[0])
        assert isinstance(error, Violation)
        small = shrink(run_core, found[0], kind_of(error), max_runs=60)
        assert small.length < found[0].length
        assert failure_of(run_core, small) is not None
    assert failure_of(run_core, small) is None
