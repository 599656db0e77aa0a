"""Histories that failed once, as small as they could be made, with what they cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from engine.api import SAMPLE_RATE
from streamer.transcription.settings import Endpointing, SessionSettings
from tests.simulation.core import run_core
from tests.simulation.history import Act, Answer, Deed, History, Manner, make_history
from tests.simulation.track import Spoken, listening_by_level


@pytest.fixture(autouse=True)
def by_level() -> Iterator[None]:
    with listening_by_level():
        yield


def history(*words: Spoken, **changes: Any) -> History:
    """A calm history, live, but for what is changed."""
    calm: dict[str, Any] = {
        "seed": 0,
        "settings": SessionSettings(language="en"),
        "lead": SAMPLE_RATE,
        "words": words,
        "packets": (1_600,),
        "speed": 1.0,
        "deeds": (),
        "answers": (Answer(0.15),),
        "manner": Manner(),
    }
    return History(**(calm | changes))


def test_a_word_before_half_a_minute_of_noise_does_not_end_the_session() -> None:
    """The window grew beyond what an engine takes: it could slide to no boundary of words."""
    run_core(history(Spoken("w0.", 7_000, 1_500), Spoken("", 38 * SAMPLE_RATE, 1_000)))


def test_a_word_that_seems_to_last_through_noise_is_not_slid_past() -> None:
    """It was shown and never settled, since the window slid past its beginning."""
    words = (
        Spoken("r0", 3_687, 1_599),
        Spoken("r0.", 4_124, 192_000),
        Spoken("r1", 6_420, 1_582),
        Spoken("", 259_158, 1_425, 18_653),
        Spoken("r3", 3_737, 1_581),
        Spoken("", 148_151, 1_078),
    )
    run_core(
        history(
            *words,
            seed=1478,
            lead=19_014,
            settings=SessionSettings(language="en", pre_roll_ms=1_000),
            manner=Manner(jitter=160, stretch=0.1),
        )
    )


MANUAL = SessionSettings(language="en", endpointing=Endpointing.MANUAL)


@pytest.mark.parametrize("quiet_s", [46, 120])
def test_quiet_in_a_manual_turn_is_no_backlog(quiet_s: int) -> None:
    """The sender waited for room, and no decode was ever to make any; nor is the quiet kept."""
    words = (Spoken("w0.", 6_000, quiet_s * SAMPLE_RATE), Spoken("w1.", 6_000, SAMPLE_RATE))
    run_core(history(*words, settings=MANUAL))
    finalized = (Deed((quiet_s + 2) * SAMPLE_RATE, Act.FINALIZE),)
    run_core(history(*words, settings=MANUAL, deeds=finalized))


@pytest.mark.parametrize("endpointing", list(Endpointing))
def test_an_upload_without_partials_is_not_kept_whole(endpointing: Endpointing) -> None:
    """Audio was dropped behind checkpoints alone, and none of them is decoded then."""
    words = [
        Spoken(f"w{index}" + "." * (index % 5 == 4), 6_000, 24_000 if index % 5 == 4 else 2_000)
        for index in range(200)
    ]
    settings = SessionSettings(language="en", partials=False, endpointing=endpointing)
    run_core(history(*words, settings=settings, speed=1000.0))


@pytest.mark.parametrize("seed", [359, 734, 1016, 1284])
def test_a_sender_that_waits_for_room_has_not_stopped(seed: int) -> None:
    """Its segment was closed amid a word while the session itself did not take its audio."""
    run_core(make_history(seed))
