"""Which web pages may use the service: by default those that it serves itself.

A browser sends cookies and reaches local networks on behalf of any page, and a WebSocket handshake
is not bound by CORS; the Origin header is what tells pages apart. A client that sends none is not a
browser.
"""

from __future__ import annotations

from collections.abc import Sequence

_DEFAULT_PORTS = {"http": ":80", "https": ":443", "ws": ":80", "wss": ":443"}


def is_allowed(origin: str, host: str, allowed: Sequence[str]) -> bool:
    """Return whether a page of this origin may use the service.

    Args:
        origin: the Origin header; "null" for pages without one of their own.
        host: the Host header, under which the page would reach us.
        allowed: origins beside our own, such as "https://app.example"; "*" for all of them.
    """
    return "*" in allowed or is_same(origin, host) or _plain(origin) in map(_plain, allowed)


def is_same(origin: str, host: str) -> bool:
    """Return whether an origin is the host itself.

    The scheme is left out: behind a proxy that ends TLS, ours is not the page's.
    """
    scheme, separator, netloc = origin.partition("://")
    if not separator or scheme.lower() not in ("http", "https"):
        return False
    return bool(netloc) and _without_port(netloc.lower(), scheme.lower()) == _without_port(
        host.lower(), scheme.lower()
    )


def cors_headers(origin: str) -> list[tuple[bytes, bytes]]:
    """What lets a page of an allowed foreign origin read an answer."""
    return [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", b"*, Retry-After"),
        (b"vary", b"Origin"),
    ]


def preflight_headers(origin: str, asked: bytes) -> list[tuple[bytes, bytes]]:
    """What answers a browser that asks first whether a page may send a request."""
    return [
        *cors_headers(origin),
        (b"access-control-allow-methods", b"GET, POST, DELETE, OPTIONS"),
        (b"access-control-allow-headers", asked),
        (b"access-control-max-age", b"600"),
        (b"content-length", b"0"),
    ]


def _plain(origin: str) -> str:
    scheme, _, netloc = origin.lower().rstrip("/").partition("://")
    return f"{scheme}://{_without_port(netloc, scheme)}" if netloc else scheme


def _without_port(netloc: str, scheme: str) -> str:
    return netloc.removesuffix(_DEFAULT_PORTS.get(scheme, ":"))
