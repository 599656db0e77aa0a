from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from streamer.config import ServerConfig


def test_the_defaults_hold() -> None:
    ServerConfig()


def test_every_field_says_what_it_means() -> None:
    for field in dataclasses.fields(ServerConfig):
        assert field.metadata["help"] and field.metadata["group"], field.name


@pytest.mark.parametrize(
    "change",
    [
        {"port": 70_000},
        {"port": -1},
        {"tls_certificate": "cert.pem"},
        {"root_path": "stt"},
        {"max_sessions": 0},
        {"max_message_bytes": 0},
        {"send_timeout_s": 0.0},
        {"start_timeout_s": float("nan")},
        {"drain_timeout_s": -1.0},
        {"resume_grace_s": -1.0},
        {"log_level": "loud"},
        {"log_format": "xml"},
        {"trusted_proxies": ("somewhere",)},
    ],
)
def test_what_cannot_be_used_is_refused_by_name(change: dict[str, Any]) -> None:
    (name,) = change
    pattern = name if name != "trusted_proxies" else "somewhere"
    with pytest.raises(ValueError, match=pattern):
        ServerConfig(**change)
