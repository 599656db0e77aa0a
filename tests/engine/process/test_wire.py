"""Messages between an engine's process and its owner survive the way."""

from __future__ import annotations

import math
import pickle

import msgspec
import numpy as np
import pytest

from engine.api import Hypothesis, InvalidRequest, ModelInfo, Segment, StreamOptions, Window, Word
from engine.config import EngineConfig
from engine.process.fault import Fault, FaultKind
from engine.process.wire import (
    MAX_FRAME_BYTES,
    ORDERS,
    REPORTS,
    Cancel,
    Close,
    Counted,
    Decode,
    Decoded,
    DecodeFailed,
    Load,
    Loaded,
    LoadFailed,
    Logged,
    Open,
    Opened,
    Order,
    Recipe,
    Report,
    Unpacker,
    make_engine,
    pack,
)
from tests.support.engines import EchoEngine

BUG = Fault(FaultKind.BUG, "KeyError")
WORDS = (Word(" hi", 0, 4, 0.25), Word(" ä", 4, 9, math.inf))
ORDER_EXAMPLES: list[Order] = [
    Load(Recipe("a", "b", 1), 20),
    Open(1, StreamOptions(language="de", hotwords=("ä",))),
    Cancel(3),
    Close(1),
]
REPORT_EXAMPLES: list[Report] = [
    Loaded(ModelInfo("tiny", ("en", "de"), "cpu", "int8")),
    LoadFailed(Fault(FaultKind.MODEL, "expected a model")),
    Opened(1),
    Opened(1, BUG),
    Decoded(2, Hypothesis(0, 9, (Segment(" hi ä", 0, 9, False, WORDS, (7, 8)),), "en", 1.0)),
    DecodeFailed(2, BUG),
    Logged(40, "engine", "a line"),
    Counted({"streams": 1.0}),
]


@pytest.mark.parametrize("size", [1, 3, 7, 1 << 20])
def test_frames_may_be_cut_anywhere(size: int) -> None:
    orders, reports = Unpacker(ORDERS), Unpacker(REPORTS)
    for unpacker, examples in ((orders, ORDER_EXAMPLES), (reports, REPORT_EXAMPLES)):
        data, found = b"".join(map(pack, examples)), list[Order | Report]()
        for start in range(0, len(data), size):
            found += unpacker.receive(data[start : start + size])
        assert found == examples


@pytest.mark.parametrize("step", [1, -1, 3])
def test_a_window_arrives_as_it_was(step: int) -> None:
    audio = np.linspace(-1, 1, 480_000, dtype=np.float32)[::step]
    sent = Decode(1, 2, Window(5, audio, prompt="x", is_final=True, deadline=3.5))
    (got,) = Unpacker(ORDERS).receive(pack(sent))
    assert isinstance(got, Decode)
    assert got.window.audio.dtype == np.float32 and np.array_equal(got.window.audio, audio)
    assert (got.window.start, got.window.prompt, got.window.deadline) == (5, "x", 3.5)
    assert got.window.is_final and not got.window.word_times


def test_a_window_that_nobody_awaits_has_no_deadline_there_either() -> None:
    (got,) = Unpacker(ORDERS).receive(pack(Decode(1, 2, Window(5, np.zeros(1, np.float32)))))
    assert isinstance(got, Decode) and got.window.deadline == math.inf


def test_audio_of_another_kind_is_refused_before_it_is_sent() -> None:
    for audio in (np.zeros(16), np.zeros((16, 2), np.float32)):
        with pytest.raises(InvalidRequest, match=r"expected audio of shape \(T,\) float32"):
            pack(Decode(1, 2, Window(0, audio)))


def test_half_of_a_surrogate_pair_is_refused_before_it_is_sent() -> None:
    with pytest.raises(InvalidRequest, match="surrogate"):
        pack(Decode(1, 2, Window(0, np.zeros(16, np.float32), prompt="\ud83d")))
    with pytest.raises(InvalidRequest, match="surrogate"):
        pack(Open(1, StreamOptions(hotwords=("\ude00",))))


def test_numbers_of_numpy_arrive_as_plain_ones() -> None:
    words = (Word(" a", np.int64(1), np.int64(2), np.float32(0.5)),)  # type: ignore[arg-type]
    sent = Decoded(1, Hypothesis(0, 9, (Segment(" a", 0, 9, False, words),), "en", 1.0))
    assert list(Unpacker(REPORTS).receive(pack(sent))) == [sent]


def test_a_frame_beyond_the_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="at most"):
        list(Unpacker(REPORTS).receive((MAX_FRAME_BYTES + 1).to_bytes(4, "little")))


@pytest.mark.parametrize("body", [b"", b"\xc1", pickle.dumps(1), msgspec.msgpack.encode({})])
def test_a_frame_of_something_else_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError):
        list(Unpacker(REPORTS).receive(len(body).to_bytes(4, "little") + body))


def test_a_recipes_argument_arrives_as_what_the_function_declares() -> None:
    config = EngineConfig(model="tiny.en", encoder_tail=3, max_streams=5)
    (got,) = Unpacker(ORDERS).receive(pack(Load(Recipe(__name__, "read_config", config), 20)))
    assert isinstance(got, Load)
    assert make_engine(got.recipe).info.name == repr(config)


def test_an_argument_that_is_not_what_the_function_declares_is_refused() -> None:
    with pytest.raises(ValueError, match="Expected `str`"):
        make_engine(Recipe("tests.support.engines", "make_echo", 5))


def read_config(config: EngineConfig) -> EchoEngine:
    return EchoEngine(repr(config))
