"""One channel, played under a clock that the test moves: what is final, and when."""

from __future__ import annotations

import dataclasses
from collections import deque

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from engine.api import SAMPLE_RATE, Hypothesis, Window
from streamer.transcription.events import Final, Partial
from streamer.transcription.settings import Delay, Endpointing, SessionSettings
from streamer.transcription.transcriber import Transcriber
from tests.support.player import TALK, Player, check, play
from tests.support.timeline import Recogniser, Timeline, timeline

# playing takes a while, and the examples are short enough to read as they are
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)


def test_every_word_is_in_one_final() -> None:
    player = play(TALK)
    check(player.events)
    assert player.text == TALK.text


@settings(max_examples=12, deadline=None, phases=PHASES, derandomize=True)
@given(
    sizes=st.lists(st.integers(20, 16_000), min_size=1, max_size=5),
    cost_s=st.floats(0.01, 0.35),
    is_live=st.booleans(),
)
def test_finals_depend_on_the_sound_alone(sizes: list[int], cost_s: float, is_live: bool) -> None:
    """Not on the sizes of packets, the engine's speed, or the pace."""
    talk = timeline([5, 6, 3], [0.35, 0.7, 0.9])
    expected = play(talk, waver=0.5)
    player = play(talk, sizes, cost_s=cost_s, waver=0.5, is_live=is_live)
    check(player.events)
    finals = [dataclasses.replace(final, lag=0) for final in player.finals]
    assert finals == [dataclasses.replace(final, lag=0) for final in expected.finals]


@settings(max_examples=12, deadline=None, phases=PHASES, derandomize=True)
@given(
    sentences=st.lists(st.tuples(st.integers(1, 12), st.floats(0.05, 2.5)), min_size=1, max_size=4),
    options=st.builds(
        SessionSettings,
        delay=st.sampled_from(list(Delay)),
        silence_ms=st.sampled_from([500, 1500]),
        pre_roll_ms=st.sampled_from([200, 1000]),
        max_segment_s=st.sampled_from([3.0, 30.0]),
        endpointing=st.sampled_from(list(Endpointing)),
        word_times=st.just(True),
    ),
    cost_s=st.floats(0.01, 3.0),
)
def test_no_word_is_lost_or_doubled(
    sentences: list[tuple[int, float]], options: SessionSettings, cost_s: float
) -> None:
    """Whatever the settings, and also when decoding falls behind."""
    talk = timeline([n for n, _ in sentences], [p for _, p in sentences])
    player = play(talk, [3200], options, cost_s=cost_s)
    check(player.events)
    assert player.text.lower() == talk.text.lower()


def test_windows_stay_short_where_sentences_end() -> None:
    talk = timeline([8] * 10, [0.1] * 9 + [1.0])
    player = play(talk)
    lengths = [len(window.audio) for window in player.recogniser.windows]
    assert np.mean(lengths) < 8 * SAMPLE_RATE
    assert player.text == talk.text


def test_silence_is_never_decoded() -> None:
    silent = Timeline((), np.zeros(60 * SAMPLE_RATE, np.float32))
    player = play(silent)
    assert player.events == [] and player.recogniser.windows == []


def test_after_the_final_nothing_more_is_decoded_or_said() -> None:
    talk = timeline([4], [20.0])
    player = play(talk)
    last = talk.words[-1].end
    assert max(window.end for window in player.recogniser.windows) < last + SAMPLE_RATE
    assert isinstance(player.events[-1], Final)
    final_at = next(at for at, event in player.told if isinstance(event, Final))
    assert final_at - last / SAMPLE_RATE < SessionSettings().silence_ms / 1000 + 0.3


def test_long_gaps_lose_nothing_and_leave_nothing_behind() -> None:
    talk = timeline([4, 4, 4], [40.0, 80.0, 1.0])
    player = play(talk, [1600])
    assert player.text == talk.text
    delays = [at - event.end / SAMPLE_RATE for at, event in player.told if isinstance(event, Final)]
    assert max(delays) - min(delays) < 0.3


@pytest.mark.parametrize("cut", [0, 7, 15, 29, 31, 333, 499])
@pytest.mark.parametrize("size", [320, 2048])
def test_the_last_word_is_there_wherever_the_sound_ends(cut: int, size: int) -> None:
    talk = timeline([4], [1.0])
    end = talk.words[-1].end + cut * 16
    assert play(Timeline(talk.words, talk.samples[:end]), [size]).text == talk.text


def test_what_is_doubted_is_withheld_with_the_reason() -> None:
    class Doubtful(Recogniser):
        def decode(self, window: Window) -> Hypothesis:
            return dataclasses.replace(super().decode(window), avg_logprob=-2.0)

    player = Player(Doubtful(TALK.words), SessionSettings())
    player.play(TALK.samples[: 5 * SAMPLE_RATE], [1600])
    events = player.end()
    assert not any(isinstance(event, Partial) for event in events)
    assert [(final.text, final.reason) for final in player.finals] == [("", "low_probability")]


@pytest.mark.parametrize("partials", [True, False])
def test_words_behind_the_place_where_the_model_stops_are_all_there(partials: bool) -> None:
    class Cramped(Recogniser):
        def decode(self, window: Window) -> Hypothesis:
            hypothesis = super().decode(window)
            if not hypothesis.segments or len(hypothesis.segments[0].words) <= 12:
                return hypothesis
            words = hypothesis.segments[0].words[:12]
            text = "".join(word.text for word in words)
            segment = dataclasses.replace(hypothesis.segments[0], text=text, words=words)
            return dataclasses.replace(hypothesis, segments=(segment,))

    talk = timeline([40], [1.0], stops=False)
    player = Player(Cramped(talk.words), SessionSettings(partials=partials))
    player.play(talk.samples, [1600])
    player.end()
    check(player.events)
    assert player.text == talk.text


def test_the_language_is_kept_once_enough_was_said() -> None:
    player = Player(Recogniser(TALK.words), SessionSettings())
    player.play(TALK.samples[: TALK.words[1].end], [1600])
    assert player.transcriber.stream_options.language is None
    player.play(TALK.samples[TALK.words[1].end :], [1600])
    assert player.transcriber.stream_options.language == "en"


def test_a_long_silence_holds_little_memory() -> None:
    transcriber = Transcriber(SessionSettings(), deque())
    for second in range(900):
        transcriber.receive_audio(np.zeros(SAMPLE_RATE, np.float32), float(second))
        assert transcriber.next_window(float(second)) is None
    assert transcriber.backlog == 0
    assert len(transcriber._buffer) <= 3.5 * SAMPLE_RATE


def test_words_come_with_times_where_asked_for() -> None:
    player = play(TALK, options=SessionSettings(word_times=True))
    assert player.words == TALK.text.split()
    for final in player.finals:
        assert all(final.start <= w.start < w.end <= final.end for w in final.words)
    assert not any(final.words for final in play(TALK).finals)
