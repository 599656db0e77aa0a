"""Why a request or a socket is turned away before it takes any resource."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus

RETRY_AFTER_S = 5.0  # when a client that found no room may ask again


@dataclass(frozen=True, slots=True)
class Refusal:
    """A reason, for each protocol to write in its own way."""

    status: HTTPStatus
    code: str  # a stable name for programs
    message: str
    retry_after_s: float | None = None

    @property
    def body(self) -> dict[str, object]:
        return {"error": {"code": self.code, "message": self.message}}

    @property
    def headers(self) -> dict[str, str]:
        if self.retry_after_s is None:
            return {}
        return {"Retry-After": str(max(1, round(self.retry_after_s)))}


def no_room(code: str, message: str) -> Refusal:
    """Make the refusal of a service that cannot take anything now, and may soon."""
    return Refusal(HTTPStatus.SERVICE_UNAVAILABLE, code, message, RETRY_AFTER_S)
