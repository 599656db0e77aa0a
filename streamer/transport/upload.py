"""The body of a request on its way in: how large it may be, and for how long it may stop.

What a body means is for the protocols to say, and how such an error is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from http import HTTPStatus

from starlette.requests import ClientDisconnect, Request

STALL_TIMEOUT_S = 60.0  # without a byte of the upload


class UploadError(Exception):
    """The body cannot be taken; the message is fit for the client.

    Attributes:
        status: 413 where it is too large, 408 where it does not go on.
    """

    def __init__(self, message: str, status: HTTPStatus) -> None:
        super().__init__(message)
        self.status = status


async def read_body(
    request: Request, max_bytes: int, *, stall_timeout_s: float = STALL_TIMEOUT_S
) -> AsyncGenerator[bytes, None]:
    """Yield the pieces of a body as they arrive.

    Raises:
        UploadError: it is larger than that, or nothing comes for so long.
        ClientDisconnect: the client left.
    """
    too_large = UploadError(
        f"expected an upload of at most {max_bytes} bytes", HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    )
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > max_bytes:
        raise too_large
    num_bytes = 0
    pieces = aiter(request.stream())
    while True:
        try:
            async with asyncio.timeout(stall_timeout_s):
                piece = await anext(pieces, None)
        except TimeoutError:
            raise UploadError(
                f"expected the next bytes of the upload within {stall_timeout_s:g} s",
                HTTPStatus.REQUEST_TIMEOUT,
            ) from None
        if piece is None:
            return
        num_bytes += len(piece)
        if num_bytes > max_bytes:
            raise too_large
        yield piece


async def watch(request: Request) -> None:
    """Wait until the client leaves, so that the work for it stops.

    Raises:
        ClientDisconnect: it has left.
    """
    while (await request.receive())["type"] != "http.disconnect":
        pass
    raise ClientDisconnect
