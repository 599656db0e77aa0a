from __future__ import annotations

from http import HTTPStatus

from streamer.access.refusal import RETRY_AFTER_S, Refusal, no_room


def test_a_refusal_says_when_to_come_back() -> None:
    refusal = Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "busy", "full", 0.2)
    assert refusal.headers == {"Retry-After": "1"}
    assert Refusal(HTTPStatus.FORBIDDEN, "no", "no").headers == {}


def test_a_refusal_is_written_for_every_vendors_client() -> None:
    busy = Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "busy", "full")
    error = {"message": "full", "type": "server_error", "code": "busy", "param": None}
    assert busy.body == {"error": error, "err_code": "BUSY", "err_msg": "full"}
    kinds = {
        HTTPStatus.BAD_REQUEST: "invalid_request_error",
        HTTPStatus.UNAUTHORIZED: "authentication_error",
        HTTPStatus.FORBIDDEN: "permission_error",
        HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_error",
    }
    for status, kind in kinds.items():
        body = Refusal(status, "no", "no", param="x").body
        assert body["error"] == {"message": "no", "type": kind, "code": "no", "param": "x"}
    assert Refusal(HTTPStatus.UNAUTHORIZED, "no", "no").body["err_code"] == "INVALID_AUTH"


def test_no_room_is_503_with_a_time_to_come_back() -> None:
    refusal = no_room("loading", "the model is loading")
    assert (refusal.status, refusal.retry_after_s) == (503, RETRY_AFTER_S)
