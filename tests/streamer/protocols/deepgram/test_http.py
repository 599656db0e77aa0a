from __future__ import annotations

import json
from http import HTTPStatus

import pytest

from engine.api import ModelInfo
from streamer.access.refusal import Refusal
from streamer.protocols.deepgram.http import check_language, error_response, refused, timestamp
from streamer.protocols.deepgram.options import parse_options
from streamer.wire import ClientFault


def test_an_error_stands_in_the_body_and_in_the_headers() -> None:
    response = error_response("r1", HTTPStatus.BAD_REQUEST, "invalid_field", "naïve: expected 1")
    body = json.loads(bytes(response.body))
    assert body == {
        "err_code": "INVALID_FIELD",
        "err_msg": "naïve: expected 1",
        "request_id": "r1",
    }
    assert response.headers["dg-request-id"] == "r1"
    assert response.headers["dg-error"] == "na?ve: expected 1", "headers are ASCII"


def test_a_refusal_says_when_to_come_back() -> None:
    response = refused("r1", Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "busy", "full", 5.0))
    assert response.status_code == 503
    assert response.headers["retry-after"] == "5"


def test_a_language_that_the_model_does_not_know_is_refused() -> None:
    info = ModelInfo("tiny.en", ("en",), "cpu", "float32")
    check_language(parse_options({}), info)
    check_language(parse_options({"language": ["en-GB"]}), info)
    with pytest.raises(ClientFault, match="'de'"):
        check_language(parse_options({"language": ["de"]}), info)


def test_times_are_written_in_utc() -> None:
    assert timestamp().endswith("Z")
    assert len(timestamp()) == len("2026-01-01T00:00:00.000Z")
