"""Arrival of packets."""

from __future__ import annotations

from streamer.transcription.pace import MAX_CAPTION_DELAY_S, STALL_TIMEOUT_S, Pace

SECOND = 16_000


def test_a_live_speaker_waits_for_text() -> None:
    pace = Pace()
    for i in range(10):
        pace.receive(i * 1600, (i + 1) * 1600, 1600, 5.0 + 0.1 * (i + 1))
    assert not pace.is_late(SECOND, 6.0 + MAX_CAPTION_DELAY_S)
    assert pace.is_late(SECOND, 6.2 + MAX_CAPTION_DELAY_S)


def test_a_recording_sent_at_once_does_not() -> None:
    pace = Pace()
    pace.receive(0, 10 * SECOND, 10 * SECOND, 5.0)
    assert not pace.is_late(SECOND, 500.0)


def test_a_pause_in_the_network_moves_what_is_due() -> None:
    pace = Pace()
    pace.receive(0, 1600, 1600, 1.0)
    before = pace.due_at(3200)
    pace.receive(1600, 3200, 1600, 9.0)
    assert pace.due_at(3200) - before > 7.0
    assert not pace.is_late(3200, 9.5)


def test_sound_has_stopped_when_the_next_packet_is_well_overdue() -> None:
    pace = Pace()
    pace.receive(0, 2 * SECOND, 2 * SECOND, 3.0)
    pace.receive(2 * SECOND, 2 * SECOND + 160, 160, 4.0)
    assert pace.stops_at == 4.0 + 1.5 + STALL_TIMEOUT_S


def test_one_large_packet_is_forgotten() -> None:
    pace = Pace()
    pace.receive(0, 30 * SECOND, 30 * SECOND, 1.0)
    speak(pace, start=30 * SECOND, seconds=60, now=1.0)
    assert pace.stops_at < 61.0 + 0.1 + STALL_TIMEOUT_S + 0.01


def test_who_caught_up_after_a_stall_is_live_again() -> None:
    pace = Pace()
    speak(pace, start=0, seconds=10, now=0.0)
    pace.receive(10 * SECOND, 15 * SECOND, 5 * SECOND, 15.0)  # what the network held back
    assert not pace.is_late(15 * SECOND, 15.6)
    speak(pace, start=15 * SECOND, seconds=120, now=15.0)
    assert pace.is_late(135 * SECOND, 135.0 + MAX_CAPTION_DELAY_S + 0.1)


def speak(pace: Pace, *, start: int, seconds: int, now: float) -> None:
    """Send packets of 0.1 s at the pace of real time, from `now` on."""
    for i in range(10 * seconds):
        at = start + i * SECOND // 10
        pace.receive(at, at + SECOND // 10, SECOND // 10, now + 0.1 * (i + 1))


def test_slow_turns_rush_live_sound_only() -> None:
    live, recorded = Pace(), Pace()
    live.receive(0, 1600, 1600, 1.0)
    recorded.receive(0, 60 * SECOND, 60 * SECOND, 1.0)
    for pace in (live, recorded):
        assert not pace.is_overloaded
        for i in range(10):
            pace.ask(float(i))
            pace.answer(i + 0.9)
    assert live.is_overloaded
    assert not recorded.is_overloaded
