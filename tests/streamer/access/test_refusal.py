from __future__ import annotations

from http import HTTPStatus

from streamer.access.refusal import RETRY_AFTER_S, Refusal, no_room


def test_a_refusal_says_when_to_come_back() -> None:
    refusal = Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "busy", "full", 0.2)
    assert refusal.headers == {"Retry-After": "1"}
    assert refusal.body == {"error": {"code": "busy", "message": "full"}}
    assert Refusal(HTTPStatus.FORBIDDEN, "no", "no").headers == {}


def test_no_room_is_503_with_a_time_to_come_back() -> None:
    refusal = no_room("loading", "the model is loading")
    assert (refusal.status, refusal.retry_after_s) == (503, RETRY_AFTER_S)
