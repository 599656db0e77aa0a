"""Histories of a whole session of `/v1/stream`, whose connections break and are resumed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

from engine.api import SAMPLE_RATE
from streamer.protocols.native.session import StreamSession
from streamer.transcription.settings import SessionSettings
from tests.simulation.history import Act, Answer, Deed, Manner
from tests.simulation.native import make_native_history, run_native
from tests.simulation.properties import Violation
from tests.simulation.shrink import failure_of
from tests.simulation.track import Spoken, listening_by_level

BLOCK = 10  # seeds a test


@pytest.fixture(autouse=True)
def by_level() -> Iterator[None]:
    with listening_by_level():
        yield


@pytest.mark.parametrize("first", range(0, 40, BLOCK))
def test_every_word_arrives_once_though_connections_break(first: int) -> None:
    for seed in range(first, first + BLOCK):
        history = make_native_history(seed)
        error = failure_of(run_native, history)
        assert error is None, (
            f"{error!r}\nrun: python -m tests.simulation --native --first {seed} --seeds 1\n"
            f"{history.describe()}"
        )


@pytest.mark.parametrize("seed", [774, 1005, 1043])
def test_a_stream_that_is_lost_at_the_end_does_not_keep_the_session_open(seed: int) -> None:
    """All was said but `done`: the channel waited for a change that was not to come."""
    run_native(make_native_history(seed))


UPLOAD = dataclasses.replace(
    make_native_history(0),
    settings=SessionSettings(language="en"),
    words=tuple(Spoken(f"w{n}" + "." * (n % 7 == 6), 6_000, 4_000) for n in range(130)),
    packets=(16_000,),
    speed=1000.0,
    answers=(Answer(0.6),),
    manner=Manner(),
    deeds=tuple(Deed(at * SAMPLE_RATE, Act.BREAK, 1.0) for at in (51, 55, 59)),
)
_take = StreamSession.take


async def _count_before_it_is_kept(self: StreamSession, item: Any) -> None:
    """Take audio as it was taken once."""
    if isinstance(item, bytes):
        self._num_bytes += len(item)
        await self._inputs.put(item)
    else:
        await _take(self, item)


def test_a_break_while_a_message_waits_for_room_costs_nothing() -> None:
    run_native(UPLOAD)
    with mock.patch.object(StreamSession, "take", _count_before_it_is_kept):
        error = failure_of(run_native, UPLOAD)
    assert isinstance(error, Violation)
