"""Our own pages may use the service, others only where they are listed."""

from __future__ import annotations

import pytest

from streamer.access.origin import is_allowed


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://localhost:8000", "localhost:8000"),
        ("https://captions.example", "captions.example"),
        ("https://captions.example", "captions.example:443"),
        ("https://captions.example:443", "captions.example"),
        ("https://captions.example:8443", "captions.example:8443"),
        ("http://[::1]:8000", "[::1]:8000"),
        ("https://Captions.Example", "captions.example"),
    ],
)
def test_our_own_pages_are_allowed(origin: str, host: str) -> None:
    assert is_allowed(origin, host, ())


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "null",
        "",
        "http://localhost:8001",
        "http://localhost",
        "http://localhost:8000.evil.example",
        "http://evil.example/localhost:8000",
        "file://localhost:8000",
        "localhost:8000",
        "http://",
    ],
)
def test_foreign_pages_are_not(origin: str) -> None:
    assert not is_allowed(origin, "localhost:8000", ("https://app.example",))


def test_listed_pages_are_allowed() -> None:
    allowed = ("https://app.example", "null")
    assert is_allowed("https://app.example", "localhost:8000", allowed)
    assert is_allowed("https://app.example:443", "localhost:8000", allowed)
    assert is_allowed("null", "localhost:8000", allowed)
    assert not is_allowed("http://app.example", "localhost:8000", allowed)
    assert is_allowed("https://anything.example", "localhost:8000", ("*",))


def test_a_page_without_origin_is_not_ours_where_the_host_is_missing() -> None:
    assert not is_allowed("http://localhost", "", ())
