"""Credentials are found wherever clients put them, and are gone afterwards."""

from __future__ import annotations

import base64

import pytest

from streamer.access.credentials import (
    Credentials,
    read_headers,
    split_path,
    split_query,
    split_subprotocols,
)


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        (b"authorization", b"Bearer s3cret", "s3cret"),
        (b"authorization", b"bearer  s3cret ", "s3cret"),
        (b"authorization", b"Token s3cret", "s3cret"),
        (b"authorization", b"Basic " + base64.b64encode(b"anyone:s3cret"), "s3cret"),
        (b"authorization", b"Basic " + base64.b64encode(b"s3cret:"), "s3cret"),
        (b"x-api-key", b"s3cret", "s3cret"),
    ],
)
def test_headers_hold_credentials(name: bytes, value: bytes, secret: str) -> None:
    assert read_headers([(b"host", b"x"), (name, value)]).candidates == [secret]


@pytest.mark.parametrize("value", [b"", b"Bearer", b"Digest x", b"Basic !!", b"Basic \xff"])
def test_other_headers_hold_none(value: bytes) -> None:
    assert [c for c in read_headers([(b"authorization", value)]).candidates if c] == []


def test_the_cookie_is_found_among_others() -> None:
    assert read_headers([(b"cookie", b"a=b; wordwire=ek_x.y; c=d")]).cookie == "ek_x.y"


@pytest.mark.parametrize("name", ["key", "token", "api_key", "%6bey"])
def test_the_query_loses_its_key_and_keeps_the_rest_as_written(name: str) -> None:
    found = Credentials([], [])
    rest = split_query(f"language=en&{name}=s3cret%2B&hotwords=a,b&flag", found)
    assert rest == "language=en&hotwords=a,b&flag"
    assert found.candidates == ["s3cret+"]


@pytest.mark.parametrize(
    ("offered", "left"),
    [
        (["token", "s3cret"], ["token"]),
        (["bearer", "s3cret"], ["bearer"]),
        (["realtime", "openai-insecure-api-key.s3cret"], ["realtime"]),
    ],
)
def test_subprotocols_lose_their_key(offered: list[str], left: list[str]) -> None:
    found = Credentials([], [])
    split_subprotocols(offered, found)
    assert found.candidates == ["s3cret"] and found.subprotocols == left


@pytest.mark.parametrize(
    ("path", "left"),
    [
        ("/v1/twilio/s3cret", "/v1/twilio"),
        ("/stt/v1/twilio/s3cret", "/stt/v1/twilio"),
        ("/v1/twilio//s3cret", "/v1/twilio"),
        ("/V1/Twilio/s3cret", "/V1/Twilio"),
        ("/twilio/s3cret", "/twilio"),
    ],
)
def test_a_path_loses_its_key_even_where_it_is_written_wrong(path: str, left: str) -> None:
    found = Credentials([], [])
    assert split_path(path, found) == left and found.candidates == ["s3cret"]


@pytest.mark.parametrize("path", ["/", "/v1/twilio", "/v1/twilio/", "/v1/calls/twilio"])
def test_a_path_without_a_key_stays(path: str) -> None:
    found = Credentials([], [])
    assert split_path(path, found) == path and not found.candidates
