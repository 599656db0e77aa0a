"""Bodies of requests: small JSON objects, and forms whose file goes to disk as it arrives."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any

from starlette.datastructures import FormData
from starlette.formparsers import MultiPartException, MultiPartParser, MultipartPart
from starlette.requests import Request

from streamer import wire
from streamer.protocols.openai.error import ApiError
from streamer.transport.upload import UploadError, read_body
from streamer.wire import ClientFault

MAX_BODY_BYTES = 1 << 20  # of JSON
MAX_FIELDS = 64
MAX_FIELD_BYTES = 64 * 1024  # of a prompt, in characters several times what a model reads


async def read_object(request: Request) -> dict[str, Any]:
    """Read a JSON object; no body is an empty one.

    Raises:
        ApiError: it is not one, or too large, or stalls.
    """
    try:
        body = b"".join([piece async for piece in read_body(request, MAX_BODY_BYTES)])
    except UploadError as error:
        raise _refusal(error, "body") from None
    return parse_object(body) if body else {}


@contextlib.asynccontextmanager
async def open_form(request: Request, max_upload_bytes: int) -> AsyncIterator[FormData]:
    """Read a multipart form; more than a megabyte of its file waits on disk, not in memory.

    Raises:
        ApiError: this is not such a form, or too large, or stalls.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "multipart/form-data":
        raise ApiError(
            f"expected a body of multipart/form-data, got {kind!r:.60}", code="invalid_content_type"
        )
    parser = MultiPartParser(
        request.headers,
        read_body(request, max_upload_bytes),
        max_files=1,
        max_fields=MAX_FIELDS,
        max_part_size=MAX_FIELD_BYTES,
    )
    try:
        form = await parser.parse()
    except UploadError as error:
        raise _refusal(error, "file") from None
    except (MultiPartException, KeyError, UnicodeDecodeError) as error:
        if (name := _large_field(parser, error)) is not None:
            if name == "file":
                raise ApiError(
                    "expected a file in the field 'file', got text: the part has no file name",
                    code="missing_file",
                    param="file",
                ) from None
            raise ApiError(
                f"expected {name} of at most {MAX_FIELD_BYTES} bytes",
                code="invalid_value",
                param=name,
            ) from None
        reason = error.message if isinstance(error, MultiPartException) else "it is malformed"
        raise ApiError(f"the form cannot be read: {reason}", code="invalid_form") from None
    try:
        yield form
    finally:
        await form.close()


def parse_object(text: str | bytes) -> dict[str, Any]:
    """Parse a JSON object, strictly.

    Raises:
        ApiError: invalid_json.
    """
    try:
        return wire.parse_object(text, None)
    except ClientFault as error:
        raise ApiError(error.message, code=error.code) from None


def _refusal(error: UploadError, what: str) -> ApiError:
    is_large = error.status is HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    return ApiError(
        str(error),
        code=f"{what}_too_large" if is_large else "request_timeout",
        param="file" if is_large and what == "file" else None,
        status=error.status,
    )


def _large_field(parser: MultiPartParser, error: Exception) -> str | None:
    """Return the name of the text field that is too large, or None where that is not the fault."""
    if not isinstance(error, MultiPartException) or "exceeded maximum size" not in error.message:
        return None
    part: MultipartPart = parser._current_part
    return part.field_name or "?"
