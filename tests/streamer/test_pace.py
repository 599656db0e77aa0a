"""Arrival of packets."""

from __future__ import annotations

from streamer.pace import LATE_S, STALL_S, Pace

SECOND = 16_000


def test_a_live_speaker_waits_for_text() -> None:
    pace = Pace()
    for i in range(10):
        pace.receive(i * 1600, (i + 1) * 1600, 1600, 5.0 + 0.1 * (i + 1))
    assert not pace.is_late(SECOND, 6.0 + LATE_S)
    assert pace.is_late(SECOND, 6.2 + LATE_S)


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
    assert pace.stops_at == 4.0 + 2.0 + STALL_S


def test_slow_turns_rush_live_sound_only() -> None:
    live, recorded = Pace(), Pace()
    live.receive(0, 1600, 1600, 1.0)
    recorded.receive(0, 60 * SECOND, 60 * SECOND, 1.0)
    for pace in (live, recorded):
        assert not pace.is_rushed
        for i in range(10):
            pace.ask(float(i))
            pace.answer(i + 0.9)
    assert live.is_rushed
    assert not recorded.is_rushed
