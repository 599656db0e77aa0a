from __future__ import annotations

import pytest

from clients.retry import GIVE_UP_AFTER_S, MAX_DELAY_S, STABLE_S, Retries


def test_delays_double_up_to_a_bound_until_the_client_gives_up() -> None:
    retries = Retries()
    retries.broke(100.0)
    now, delays = 100.0, []
    while (delay_s := retries.next_delay(now)) is not None:
        delays.append(delay_s)
        now += delay_s
    expected = [min(MAX_DELAY_S, 0.5 * 2**n) for n in range(len(delays))]
    assert delays == pytest.approx(expected, rel=0.25)
    assert GIVE_UP_AFTER_S - 1.25 * MAX_DELAY_S < now - 100.0 <= GIVE_UP_AFTER_S


def test_what_the_server_asks_for_is_waited() -> None:
    retries = Retries()
    retries.broke(0.0)
    assert retries.next_delay(0.0, at_least=20.0) == pytest.approx(20.0, rel=0.25)


@pytest.mark.parametrize(("lasted_s", "is_new"), [(STABLE_S - 1, False), (STABLE_S + 1, True)])
def test_only_a_connection_that_lasts_starts_the_delays_anew(lasted_s: float, is_new: bool) -> None:
    retries = Retries()
    retries.broke(0.0)
    for _ in range(5):
        retries.next_delay(0.0)
    retries.ready(50.0)
    retries.broke(50.0 + lasted_s)
    delay_s = retries.next_delay(50.0 + lasted_s)
    assert delay_s == pytest.approx(0.5 if is_new else 0.5 * 2**5, rel=0.25)


def test_a_connection_that_never_was_ready_is_not_stable() -> None:
    retries = Retries()
    retries.broke(0.0)
    retries.broke(GIVE_UP_AFTER_S)
    assert retries.next_delay(GIVE_UP_AFTER_S) is None


def test_clients_that_lost_the_same_server_do_not_reconnect_in_the_same_instant() -> None:
    delays = set()
    for _ in range(20):
        retries = Retries()
        retries.broke(0.0)
        delays.add(retries.next_delay(0.0))
    assert len(delays) > 10
