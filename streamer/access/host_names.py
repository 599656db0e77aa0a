"""Under which names the service may be reached where it has no keys.

A page can have its own name resolve to this machine once it is loaded (DNS rebinding); to the
browser the service is then of the page's own origin. The Host header still holds the page's name.
Names that nobody can register, and addresses, are ours; others have to be listed.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

# reserved, so that nobody can register one (RFC 6761, RFC 6762, RFC 8375, ICANN's .internal)
_LOCAL_SUFFIXES = (".localhost", ".local", ".internal", ".test", ".home.arpa")


def is_expected(host: str, allowed: Iterable[str]) -> bool:
    """Return whether a request with this Host header may be for us.

    Args:
        host: the header, perhaps with a port; "" where there is none, as no browser sends it.
        allowed: names beside the local ones; "*" for all of them.
    """
    name = _without_port(host).rstrip(".").lower()
    if "." not in name or name.endswith(_LOCAL_SUFFIXES):
        return True
    known = {each.rstrip(".").lower() for each in allowed}
    return "*" in known or name in known or _is_address(name)


def names_of(origins: Iterable[str]) -> list[str]:
    """Return the names of origins: "https://app.example:8443" is of "app.example"."""
    return [_without_port(each.partition("://")[2] or each) for each in origins]


def _without_port(host: str) -> str:
    if host.startswith("["):  # an IPv6 address
        return host[1:].partition("]")[0]
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdecimal() else host


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
