"""One channel where decoding is slow or fails, or the audio never pauses or stops coming."""

from __future__ import annotations

from collections import deque

import pytest

from engine.api import SAMPLE_RATE
from streamer.transcription.events import Final
from streamer.transcription.settings import SessionSettings
from streamer.transcription.transcriber import Transcriber
from tests.support.player import TALK, Player, check, play
from tests.support.timeline import Recogniser, timeline

LONG = timeline([260], [0.8], gap_s=0.05, stops=False)  # 90 s without pause or full stop


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
    transcriber = Transcriber(SessionSettings(), deque())
    transcriber.receive_audio(TALK.samples[: 3 * SAMPLE_RATE], 3.0)
    assert transcriber.next_window(3.0) is not None
    transcriber.receive_audio(TALK.samples[3 * SAMPLE_RATE : 6 * SAMPLE_RATE], 6.0)
    transcriber.finalize()
    assert transcriber.next_window(6.0) is None


def test_a_failed_window_is_decoded_again() -> None:
    transcriber = Transcriber(SessionSettings(), deque())
    transcriber.receive_audio(TALK.samples[: 3 * SAMPLE_RATE], 3.0)
    window = transcriber.next_window(3.0)
    transcriber.window_failed()
    again = transcriber.next_window(3.2)
    assert window is not None and again is not None
    assert (window.start, window.end) == (again.start, again.end)


def test_sound_that_stops_coming_becomes_final_and_speech_goes_on() -> None:
    talk = timeline([4, 4], [0.04, 1.0])
    player = Player(Recogniser(talk.words), SessionSettings())
    until = talk.words[3].end + 300
    player.play(talk.samples[:until], [320])
    player.wait(player.now + 0.1)  # while a decode waits, so may the sender: nothing is closed
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


def test_a_refresh_makes_way_for_a_text_that_may_be_final() -> None:
    transcriber = Transcriber(SessionSettings(), deque())
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
