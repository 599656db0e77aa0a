"""One channel, played under a clock that the test moves."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from engine.api import SAMPLE_RATE, Hypothesis, Window
from streamer.transcription.events import Final, Partial
from streamer.transcription.settings import Delay, Endpointing, SessionSettings
from streamer.transcription.transcriber import Transcriber
from tests.support.player import Player, check, play
from tests.support.timeline import Recogniser, Timeline, timeline

TALK = timeline([5, 8, 3, 30, 2], [0.35, 0.7, 1.5, 0.9, 1.0])
# playing takes a while, and the examples are short enough to read as they are
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
LONG = timeline([260], [0.8], gap_s=0.05, stops=False)  # 90 s without pause or full stop


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


@pytest.mark.parametrize("partials", [True, False])
def test_talk_without_pauses_keeps_coming(partials: bool) -> None:
    player = play(LONG, [16_000], SessionSettings(partials=partials))
    assert player.text == LONG.text
    assert max(final.end - final.start for final in player.finals) <= 30 * SAMPLE_RATE
    assert not any(final.is_endpoint for final in player.finals[:-1])
    assert all(len(window.audio) < 30 * SAMPLE_RATE for window in player.recogniser.windows)
    final_at = [(at, event) for at, event in player.told if isinstance(event, Final)]
    # the lag does not grow with the length of the talk
    assert all(at - final.end / SAMPLE_RATE < 20 for at, final in final_at[:-1])
    assert final_at[-1][0] - final_at[-1][1].end / SAMPLE_RATE < 1.5


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


def test_overload_means_fewer_and_larger_updates() -> None:
    fast, slow = play(TALK, cost_s=0.05), play(TALK, cost_s=1.2)
    assert slow.text == fast.text
    assert len(slow.recogniser.windows) < len(fast.recogniser.windows) / 2
    (*_, last_at), (*_, last) = zip(*slow.told, strict=True)
    assert isinstance(last, Final) and last_at - len(TALK.samples) / SAMPLE_RATE < 4.0


def test_a_recording_sent_at_once_skips_nothing_however_slow_the_engine() -> None:
    live = play(TALK, cost_s=0.05)
    player = play(TALK, [8000], cost_s=2.0, is_live=False)
    marked = {(w.start, w.end) for w in player.recogniser.windows}
    assert marked <= {(w.start, w.end) for w in live.recogniser.windows}
    assert [f.text for f in player.finals] == [f.text for f in live.finals]


def test_one_window_is_in_flight_at_a_time() -> None:
    transcriber = Transcriber(SessionSettings())
    transcriber.receive_audio(TALK.samples[: 3 * SAMPLE_RATE], 3.0)
    assert transcriber.next_window(3.0) is not None
    transcriber.receive_audio(TALK.samples[3 * SAMPLE_RATE : 6 * SAMPLE_RATE], 6.0)
    transcriber.finalize()
    assert transcriber.next_window(6.0) is None


def test_a_failed_window_is_decoded_again() -> None:
    transcriber = Transcriber(SessionSettings())
    transcriber.receive_audio(TALK.samples[: 3 * SAMPLE_RATE], 3.0)
    window = transcriber.next_window(3.0)
    transcriber.window_failed()
    again = transcriber.next_window(3.2)
    assert window is not None and again is not None
    assert (window.start, window.end) == (again.start, again.end)


@pytest.mark.parametrize("cut", [0, 7, 15, 29, 31, 333, 499])
@pytest.mark.parametrize("size", [320, 2048])
def test_the_last_word_is_there_wherever_the_sound_ends(cut: int, size: int) -> None:
    talk = timeline([4], [1.0])
    end = talk.words[-1].end + cut * 16
    assert play(Timeline(talk.words, talk.samples[:end]), [size]).text == talk.text


def test_sound_that_stops_coming_becomes_final_and_speech_goes_on() -> None:
    talk = timeline([4, 4], [0.04, 1.0])
    player = Player(Recogniser(talk.words), SessionSettings())
    until = talk.words[3].end + 300
    player.play(talk.samples[:until], [320])
    assert player.transcriber.wake_at is not None
    player.wait(player.transcriber.wake_at)
    player.wait(player.now + 0.5)
    assert player.text == "W0 w1 w2 w3."
    assert player.now - until / SAMPLE_RATE < 2.0
    assert player.transcriber.wake_at is None
    player.now += 8.0
    player.play(talk.samples[until:], [320])
    player.end()
    check(player.events)
    assert player.text == talk.text
    assert player.finals[1].start < talk.words[4].start


def test_large_packets_are_waited_for() -> None:
    """A client that sends two seconds at a time has not stopped in between."""
    player = Player(Recogniser(LONG.words), SessionSettings())
    player.play(LONG.samples[: 20 * SAMPLE_RATE], [2 * SAMPLE_RATE])
    assert player.finals == []


def test_finalize_closes_here_and_goes_on() -> None:
    player = Player(Recogniser(TALK.words), SessionSettings())
    middle = TALK.words[2].end + 200
    player.play(TALK.samples[:middle], [1600])
    player.transcriber.finalize()
    player.transcriber.finalize()
    player.play(TALK.samples[middle:], [1600])
    player.end()
    check(player.events)
    assert player.finals[0].text == "W0 w1 w2"
    assert player.text == TALK.text


def test_finalize_without_speech_says_nothing() -> None:
    """Noise that came after the last word is not transcribed when the user presses stop."""
    talk = timeline([3], [3.0])
    recogniser = Recogniser(talk.words, invent=" Thank you.")
    player = Player(recogniser, SessionSettings())
    player.play(talk.samples, [1600])
    player.transcriber.finalize()
    player.end()
    assert player.text == talk.text
    assert len(player.finals) == 1


def test_a_manual_segment_is_all_between_two_finalizes() -> None:
    talk = timeline([3, 3], [1.6, 2.5])
    player = Player(Recogniser(talk.words), SessionSettings(endpointing=Endpointing.MANUAL))
    player.play(talk.samples, [1600])
    assert player.finals == []
    player.transcriber.finalize()
    player.wait(player.now + 1.0)
    assert [final.text for final in player.finals] == [talk.text]
    player.feed(np.zeros(8000, np.float32))
    player.transcriber.finalize()
    player.end()
    empty = player.finals[1]
    assert (empty.text, empty.reason) == ("", "no_speech")


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


def test_without_partials_only_finals_come_and_less_is_decoded() -> None:
    player = play(TALK, options=SessionSettings(partials=False))
    assert player.text == TALK.text
    assert not any(isinstance(event, Partial) for event in player.events)
    assert len(player.recogniser.windows) < len(play(TALK).recogniser.windows) / 3


def test_an_update_counts_from_the_next_segment_on() -> None:
    player = Player(Recogniser(TALK.words), SessionSettings(language="en"))
    middle = TALK.words[2].end
    player.play(TALK.samples[:middle], [1600])
    player.transcriber.update(SessionSettings(language="de", prompt="Hallo."))
    assert player.transcriber.stream_options.language == "en"
    player.transcriber.finalize()
    player.play(TALK.samples[middle:], [1600])
    player.end()
    assert {w.prompt for w in player.recogniser.windows} == {"", "Hallo."}
    assert player.transcriber.stream_options.language == "de"
    assert [final.language for final in player.finals][:2] == ["en", "de"]


def test_the_language_is_kept_once_enough_was_said() -> None:
    player = Player(Recogniser(TALK.words), SessionSettings())
    player.play(TALK.samples[: TALK.words[1].end], [1600])
    assert player.transcriber.stream_options.language is None
    player.play(TALK.samples[TALK.words[1].end :], [1600])
    assert player.transcriber.stream_options.language == "en"


def test_a_long_silence_holds_little_memory() -> None:
    transcriber = Transcriber(SessionSettings())
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


def test_forgotten_sound_is_in_no_later_window() -> None:
    talk = timeline([4, 4], [0.4, 1.0])
    player = Player(Recogniser(talk.words), SessionSettings())
    middle = (talk.words[3].start + talk.words[3].end) // 2
    player.play(talk.samples[:middle], [1600])
    player.transcriber.forget()
    player.play(talk.samples[middle:], [1600])
    events = player.end()
    first, *rest = [event for event in events if isinstance(event, Final)]
    assert first.end <= middle
    later = [window for window in player.recogniser.windows if window.end > middle + SAMPLE_RATE]
    assert later and all(window.start >= middle for window in later)
    assert "w2" not in " ".join(final.text for final in rest)


def test_a_refresh_makes_way_for_a_text_that_may_be_final() -> None:
    transcriber = Transcriber(SessionSettings())
    talk = timeline([6], [1.0])
    in_flight = False
    for position in range(0, len(talk.samples), 1600):
        now = (position + 1600) / SAMPLE_RATE
        transcriber.receive_audio(talk.samples[position : position + 1600], now)
        # the first window never comes back
        in_flight = in_flight or transcriber.next_window(now) is not None
    at = transcriber.preempt_at
    assert in_flight and at is not None
    assert not transcriber.preempt(at - 0.01)
    assert transcriber.next_window(at - 0.01) is None
    assert transcriber.preempt(at)
    window = transcriber.next_window(at)
    assert window is not None and window.is_final
    assert transcriber.preempt_at is None  # it is what all wait for


class Unsure(Recogniser):
    """Is sure of no word."""

    def decode(self, window: Window) -> Hypothesis:
        found = super().decode(window)
        if not found.segments:
            return found
        words = [dataclasses.replace(w, probability=0.5) for w in found.segments[0].words]
        segment = dataclasses.replace(found.segments[0], words=tuple(words))
        return dataclasses.replace(found, segments=(segment,))


class ContextReader(Recogniser):
    """Misreads what is said after a long silence, unless the turn before stands in front of it."""

    def decode(self, window: Window) -> Hypothesis:
        found = super().decode(window)
        later = [word for word in self.words if word.start > 5 * SAMPLE_RATE]
        if not found.segments or window.end < later[0].end:
            return found
        has_context = later[0].start - window.start > SAMPLE_RATE
        words = [
            dataclasses.replace(
                word, text=word.text + ("" if has_context else "x"), probability=0.5
            )
            for word in found.segments[0].words
        ]
        text = "".join(word.text for word in words)
        segment = dataclasses.replace(found.segments[0], text=text, words=tuple(words))
        return dataclasses.replace(found, segments=(segment,))


CALL = timeline([6, 3], [6.0, 1.5])  # a turn, a long silence, a short turn


def test_a_short_turn_after_a_long_silence_is_read_again_with_what_was_said_before() -> None:
    player = Player(ContextReader(CALL.words), SessionSettings())
    player.play(CALL.samples, [1600])
    player.end()
    check(player.events)
    assert player.text == CALL.text
    first, second = player.finals
    again = player.recogniser.windows[-1]
    assert again.is_final and again.end == second.end
    turn, before = second.end - second.start, first.end - first.start
    assert len(again.audio) == turn + before  # no silence between
    assert np.array_equal(again.audio[:before], CALL.samples[first.start : first.end])
    # in time: the second reading is over before the silence is long enough
    final_at = [at for at, event in player.told if isinstance(event, Final)][-1]
    assert final_at - CALL.words[-1].end / SAMPLE_RATE < 1.0


def test_a_second_reading_settles_once_where_a_pause_ends_before_the_segment_does() -> None:
    player = Player(ContextReader(CALL.words), SessionSettings(silence_ms=1_500))
    player.play(CALL.samples, [1600])
    player.end()
    check(player.events)
    assert player.text == CALL.text


def test_where_windows_take_long_nothing_is_read_again() -> None:
    player = Player(ContextReader(CALL.words), SessionSettings(), cost_s=0.6)
    player.play(CALL.samples, [1600])
    player.end()
    assert "x" in player.finals[-1].text


def test_a_text_that_could_go_out_does_not_wait_long_for_a_second_reading() -> None:
    transcriber, recogniser = Transcriber(SessionSettings()), ContextReader(CALL.words)
    in_flight, at = None, None
    for position in range(0, len(CALL.samples), 1600):
        now = (position + 1600) / SAMPLE_RATE
        transcriber.receive_audio(CALL.samples[position : position + 1600], now)
        while in_flight is None and (in_flight := transcriber.next_window(now)) is not None:
            is_second = in_flight.is_final and in_flight.end - in_flight.start > 3 * SAMPLE_RATE
            if not (is_second and in_flight.end > 8 * SAMPLE_RATE):  # that one never comes back
                transcriber.receive_hypothesis(recogniser.decode(in_flight), now)
                in_flight = None
        if (at := transcriber.preempt_at) is not None:
            break
    assert in_flight is not None and at is not None
    assert at - CALL.words[-1].end / SAMPLE_RATE < 1.3
    assert not transcriber.preempt(at - 0.01) and transcriber.preempt(at)
    assert transcriber.next_window(at) is None
    finals = [event for event in transcriber.take_events() if isinstance(event, Final)]
    assert finals[-1].text == "W6x w7x w8.x"  # as it was read first


def test_what_is_to_be_forgotten_is_not_recalled() -> None:
    player = Player(ContextReader(CALL.words), SessionSettings())
    middle = CALL.words[5].end + SAMPLE_RATE // 5  # its text is not final yet
    player.play(CALL.samples[:middle], [1600])
    player.transcriber.forget()
    player.play(CALL.samples[middle:], [1600])
    player.end()
    later = [window for window in player.recogniser.windows if window.end > 6 * SAMPLE_RATE]
    assert later and all(len(window.audio) < 2.5 * SAMPLE_RATE for window in later)
    assert "x" in player.finals[-1].text


def test_a_second_reading_that_was_lost_leaves_the_first() -> None:
    player = Player(ContextReader(CALL.words), SessionSettings())
    transcriber, recogniser = player.transcriber, player.recogniser
    transcriber.receive_audio(CALL.samples, 0.0)
    transcriber.end()
    num_lost = 0
    while (window := transcriber.next_window(0.0)) is not None:
        if len(window.audio) > 3 * SAMPLE_RATE and window.end > 8 * SAMPLE_RATE:
            num_lost += 1
            transcriber.window_failed()
        else:
            transcriber.receive_hypothesis(recogniser.decode(window), 0.0)
    finals = [event for event in transcriber.take_events() if isinstance(event, Final)]
    assert num_lost == 1 and transcriber.is_finished
    assert finals[-1].text == "W6x w7x w8.x"


@pytest.mark.parametrize("size", [160, 1600, 16_000, 160_000])
def test_packets_do_not_change_what_is_read_again(size: int) -> None:
    player = Player(ContextReader(CALL.words), SessionSettings())
    player.play(CALL.samples, [size])
    player.end()
    assert player.text == CALL.text


def test_a_turn_that_had_enough_context_is_not_read_again() -> None:
    near = timeline([6, 3], [1.2, 1.5])  # close enough for the turn before to be in its window
    player = Player(Unsure(near.words), SessionSettings())
    player.play(near.samples, [1600])
    player.end()
    assert player.text == near.text
    lengths = [len(window.audio) for window in player.recogniser.windows]
    starts = {window.start for window in player.recogniser.windows}
    assert len(starts) == 1 and lengths == sorted(lengths)
