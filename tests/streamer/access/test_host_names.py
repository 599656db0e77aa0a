"""Names that a page of the internet could have are not ours unless they are listed."""

from __future__ import annotations

import pytest

from streamer.access.host_names import is_expected, names_of


@pytest.mark.parametrize(
    "host",
    [
        "",
        "localhost",
        "LOCALHOST:8000",
        "localhost.",
        "127.0.0.1:8000",
        "192.168.1.7",
        "[::1]:8000",
        "[fe80::1]",
        "wordwire",
        "wordwire:8000",
        "studio.local:8000",
        "app.localhost",
        "stt.internal",
        "nas.home.arpa",
        "stage.test:8000",
    ],
)
def test_addresses_and_local_names_are_expected(host: str) -> None:
    assert is_expected(host, ())


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8000",
        "evil.example.",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "x.local.evil.example:80",
    ],
)
def test_other_names_are_expected_only_where_they_are_listed(host: str) -> None:
    assert not is_expected(host, ("stt.example",))
    assert is_expected(host, ("*",))
    assert is_expected(host, (host.partition(":")[0].upper(),))


def test_origins_have_names() -> None:
    assert names_of(["https://app.example:8443", "http://[::1]:80", "*"]) == [
        "app.example",
        "::1",
        "*",
    ]
