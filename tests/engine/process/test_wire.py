"""Messages between an engine's process and its owner survive the way."""

from __future__ import annotations

import numpy as np
import pytest

from engine.api import EngineBusy, Hypothesis, InvalidRequest, Segment, StreamOptions, Window
from engine.process.wire import (
    MAX_FRAME_BYTES,
    Cancel,
    Close,
    Counted,
    Decode,
    Decoded,
    Load,
    Logged,
    Open,
    Opened,
    Order,
    Recipe,
    Report,
    Unpacker,
    pack,
)

MESSAGES: list[Order | Report] = [
    Load(Recipe("a", "b", 1), 20),
    Open(1, StreamOptions(language="de", hotwords=("ä",))),
    Cancel(3),
    Close(1),
    Opened(1),
    Decoded(2, Hypothesis(0, 9, (Segment(" hi", 0, 9, False),), "en", 1.0)),
    Logged(40, "engine", "a line"),
    Counted({"streams": 1.0}),
]


@pytest.mark.parametrize("size", [1, 3, 7, 1 << 20])
def test_frames_may_be_cut_anywhere(size: int) -> None:
    data = b"".join(map(pack, MESSAGES))
    unpacker, found = Unpacker(), list[Order | Report]()
    for start in range(0, len(data), size):
        found += unpacker.receive(data[start : start + size])
    assert found == MESSAGES


def test_a_window_arrives_as_it_was() -> None:
    audio = np.linspace(-1, 1, 480_000, dtype=np.float32)
    sent = Decode(1, 2, Window(5, audio, prompt="x", is_final=True, deadline=3.5))
    (got,) = Unpacker().receive(pack(sent))
    assert isinstance(got, Decode)
    assert np.array_equal(got.window.audio, audio)
    assert (got.window.start, got.window.prompt, got.window.deadline) == (5, "x", 3.5)


@pytest.mark.parametrize("error", [EngineBusy("no room"), InvalidRequest("expected en, got xx")])
def test_errors_arrive_as_what_they_are(error: Exception) -> None:
    (got,) = Unpacker().receive(pack(Decoded(1, error)))
    assert isinstance(got, Decoded)
    assert type(got.outcome) is type(error) and str(got.outcome) == str(error)


def test_a_frame_beyond_the_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="at most"):
        list(Unpacker().receive((MAX_FRAME_BYTES + 1).to_bytes(4, "little")))
