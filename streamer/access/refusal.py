"""Why a request or a socket is turned away before it takes any resource."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus

RETRY_AFTER_S = 5.0  # when a client that found no room may ask again
_KINDS = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


@dataclass(frozen=True, slots=True)
class Refusal:
    """A reason, for each protocol to write in its own way."""

    status: HTTPStatus
    code: str  # a stable name for programs
    message: str
    retry_after_s: float | None = None
    param: str | None = None  # the field or parameter that is refused

    @property
    def body(self) -> dict[str, object]:
        """The refusal for every vendor's client: each reads the fields that it knows."""
        is_key = self.status is HTTPStatus.UNAUTHORIZED
        return {
            "error": {
                "message": self.message,
                "type": self._kind,
                "code": self.code,
                "param": self.param,
            },
            "err_code": "INVALID_AUTH" if is_key else self.code.upper(),
            "err_msg": self.message,
        }

    @property
    def _kind(self) -> str:
        """Return OpenAI's name for the class of the error."""
        default = "server_error" if self.status >= 500 else "invalid_request_error"
        return _KINDS.get(self.status, default)

    @property
    def headers(self) -> dict[str, str]:
        if self.retry_after_s is None:
            return {}
        return {"Retry-After": str(max(1, round(self.retry_after_s)))}


def no_room(code: str, message: str) -> Refusal:
    """Make the refusal of a service that cannot take anything now, and may soon."""
    return Refusal(HTTPStatus.SERVICE_UNAVAILABLE, code, message, RETRY_AFTER_S)
