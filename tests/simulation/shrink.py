"""Make a history that fails smaller, for as long as it fails in the same way."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from typing import Any

from streamer.transcription.settings import SessionSettings
from tests.simulation.history import Answer, Deed, History, Manner

MAX_RUNS = 600  # of candidates; the history is small enough then

Run = Callable[[History], object]


def failure_of(run: Run, history: History) -> BaseException | None:
    """Return what a history raises; None where it holds all promises."""
    try:
        run(history)
    except Exception as error:  # whatever our code raises is a fault
        return error
    return None


def kind_of(error: BaseException) -> str:
    """Name a failure without what differs from one history to the next."""
    line = re.split(r"[\d(:{]", f"{type(error).__name__} {error}", maxsplit=1)[0]
    return line.partition("\n")[0].strip()


def shrink(run: Run, history: History, kind: str, max_runs: int = MAX_RUNS) -> History:
    """Return the smallest history found that fails in this way."""
    num_runs, is_smaller = 0, True
    while is_smaller:
        is_smaller = False
        for candidate in _smaller(history):
            num_runs += 1
            if num_runs > max_runs:
                return history
            error = failure_of(run, candidate)
            if error is not None and kind_of(error) == kind:
                history, is_smaller = candidate, True
                break
    return history


def _smaller(history: History) -> Iterator[History]:
    """Yield histories with something left out, the largest parts first."""
    size = len(history.words)
    while size:
        for first in reversed(range(0, len(history.words), size)):
            yield _without_words(history, first, first + size)
        size //= 2
    for index in range(len(history.deeds)):
        deeds = history.deeds[:index] + history.deeds[index + 1 :]
        yield dataclasses.replace(history, deeds=deeds)
    if len(history.answers) > 1:
        for answer in dict.fromkeys([Answer(0.15), *history.answers]):
            yield dataclasses.replace(history, answers=(answer,))
        for index in range(len(history.answers)):
            answers = history.answers[:index] + history.answers[index + 1 :]
            yield dataclasses.replace(history, answers=answers)
    yield from _plainer(history)


def _without_words(history: History, first: int, last: int) -> History:
    """Leave out words and their time; what was done later is done as much sooner."""
    before = history.lead + sum(w.length + w.gap for w in history.words[:first])
    length = sum(w.length + w.gap for w in history.words[first:last])
    deeds = tuple(
        Deed(d.at if d.at <= before else max(before, d.at - length), d.act, d.seconds)
        for d in history.deeds
    )
    words = history.words[:first] + history.words[last:]
    return dataclasses.replace(history, words=words, deeds=deeds)


def _plainer(history: History) -> Iterator[History]:
    """Yield histories with one thing as it usually is."""
    plain: dict[str, Any] = {
        "packets": (1_600,),
        "speed": 1.0,
        "manner": Manner(),
        "updates": (SessionSettings(language="en"),),
    }
    for name, value in plain.items():
        if getattr(history, name) != value:
            yield dataclasses.replace(history, **{name: value})
    parents: dict[str, Any] = {
        "manner": Manner(),
        "settings": SessionSettings(language="en"),
    }
    for parent, usual in parents.items():
        found = getattr(history, parent)
        for field in dataclasses.fields(found):
            value = getattr(usual, field.name)
            if getattr(found, field.name) != value:
                one = dataclasses.replace(found, **{field.name: value})
                yield dataclasses.replace(history, **{parent: one})
    for index, word in enumerate(history.words):
        if word.num_soft:
            words = list(history.words)
            words[index] = dataclasses.replace(word, num_soft=0)
            yield dataclasses.replace(history, words=tuple(words))
