"""What was said before is context for what follows, unless it is far away or forgotten."""

from __future__ import annotations

import numpy as np
import pytest

from engine.api import SAMPLE_RATE
from streamer.transcription.buffer import AudioBuffer
from streamer.transcription.history import History
from streamer.transcription.second_pass import MAX_RECENT_AGE, MAX_RECENT_LENGTH
from streamer.transcription.settings import SessionSettings
from streamer.transcription.utterance import CONTEXT_LENGTH, MAX_CONTEXT_GAP, Utterance
from tests.support.words import heard


def buffer(seconds: int) -> AudioBuffer:
    filled = AudioBuffer()
    filled.append(np.full(seconds * SAMPLE_RATE, 0.1, np.float32))
    return filled


def after(history: History, start: int, *, has_same_options: bool = True) -> Utterance:
    """The utterance that begins here, in a channel with this history."""
    following = Utterance(1, start, SessionSettings())
    history.precede(following, buffer(20), CONTEXT_LENGTH, has_same_options=has_same_options)
    return following


def test_the_next_utterance_follows_the_last_one() -> None:
    history, last = History(), heard("Short one.")
    history.add(last, last.end, buffer(20))
    assert after(history, last.end + SAMPLE_RATE).window_start == 0
    assert history.recent.length == last.end


@pytest.mark.parametrize("is_forgotten", [True, False])
def test_what_is_forgotten_or_in_another_language_is_not_context(is_forgotten: bool) -> None:
    history, last = History(), heard("Short one.")
    history.add(last, last.end, buffer(20))
    if is_forgotten:
        history.forget_before(last.end)
    start = last.end + SAMPLE_RATE
    following = after(history, start, has_same_options=is_forgotten)
    assert following.window_start == start and history.recent.length == 0


def test_an_utterance_that_ends_before_what_is_forgotten_is_not_kept() -> None:
    history, last = History(), heard("Short one.")
    history.forget_before(last.end)
    history.add(last, last.end, buffer(20))
    assert history.recent.length == 0
    start = last.end + SAMPLE_RATE
    assert after(history, start).window_start == start


def test_audio_of_the_last_utterance_is_needed_until_it_is_too_far_away() -> None:
    history, last = History(), heard("Short one.")
    history.add(last, last.end, buffer(20))
    near = last.end + MAX_CONTEXT_GAP
    assert history.needed_from(near) == last.end - CONTEXT_LENGTH
    assert history.needed_from(near + 1) == near + 1
    assert history.recent.length > 0
    history.needed_from(last.end + MAX_RECENT_AGE + 1)
    assert history.recent.length == 0


def test_all_audio_of_an_open_utterance_is_needed_that_may_be_context_later() -> None:
    history = History()
    short, long = Utterance(0, 0, SessionSettings()), Utterance(0, 0, SessionSettings())
    short.window_start = MAX_RECENT_LENGTH
    long.window_start = MAX_RECENT_LENGTH + 1
    assert history.needed_during(short) == 0
    assert history.needed_during(long) == long.window_start
