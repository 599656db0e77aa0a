"""Errors as OpenAI writes them, in bodies and in events."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from starlette.responses import JSONResponse

from engine.api import ModelInfo
from streamer.access.refusal import Refusal
from streamer.protocols.language_names import read_language
from streamer.protocols.model_names import is_served
from streamer.service import Service
from streamer.wire import ClientFault

INVALID_REQUEST = "invalid_request_error"


class ApiError(ClientFault):
    """The client's fault, or no room, with all that OpenAI says of it."""

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        kind: str = INVALID_REQUEST,
        status: HTTPStatus = HTTPStatus.BAD_REQUEST,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(code or "", message, field=param)
        self.kind = kind
        self.status = status
        self.headers = dict(headers or {})

    @classmethod
    def refused(cls, refusal: Refusal) -> ApiError:
        """Write a refusal of the service."""
        is_limit = refusal.status is HTTPStatus.TOO_MANY_REQUESTS
        return cls(
            refusal.message,
            code=refusal.code,
            kind="rate_limit_error" if is_limit else "server_error",
            status=refusal.status,
            headers=refusal.headers,
        )

    def response(self) -> JSONResponse:
        """Write the error as the answer to a request."""
        return JSONResponse({"error": self.fields}, status_code=self.status, headers=self.headers)

    @property
    def fields(self) -> dict[str, object]:
        return {
            "message": self.message,
            "type": self.kind,
            "param": self.field,
            "code": self.code or None,
        }


def served_model(service: Service) -> ModelInfo:
    """Return the model that answers.

    Raises:
        ApiError: there is none yet.
    """
    info = service.info
    if info is None:
        refusal = service.refusal()
        assert refusal is not None, "a service without a model refuses"
        raise ApiError.refused(refusal)
    return info


def check_model(name: str, info: ModelInfo, *, param: str = "model") -> None:
    """Refuse a model that is not served.

    Raises:
        ApiError: 404 model_not_found.
    """
    if not is_served(name, info):
        raise ApiError(
            f"the model {name!r:.80} does not exist here, the one served is {info.name!r}",
            code="model_not_found",
            param=param,
            status=HTTPStatus.NOT_FOUND,
        )


def check_language(name: str | None, info: ModelInfo, *, param: str = "language") -> str | None:
    """Return the code of a language as the model knows it; None leaves it to detection.

    As `read_language` does: "en-US" and "English" are "en", "" and "auto" are None.

    Raises:
        ApiError: the model does not know it.
    """
    code = read_language(name)
    if code is not None and code not in info.languages:
        raise ApiError(
            f"expected an ISO 639-1 language that {info.name} knows, got {name!r:.40}",
            code="unsupported_language",
            param=param,
        )
    return code
