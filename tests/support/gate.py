"""What tests of the access gate share: keys, and requests that may be refused."""

from __future__ import annotations

from typing import Any

import httpx
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.support.running_service import Running

KEY = "a-key-for-the-tests-0001"
OTHER = "a-key-for-the-tests-0002"


async def handshake(
    service: Running, path: str, *, name: str | None = None, **options: object
) -> int:
    """Try to open a socket, perhaps by another name; return the HTTP status, 101 if it opened."""
    url = service.ws + path
    if name is not None:
        url = url.replace(service.host, name)
        options |= {"host": service.host, "port": service.port}
    try:
        async with connect(url, compression=None, **options):  # type: ignore[arg-type]
            return 101
    except InvalidStatus as error:
        return error.response.status_code


async def get(service: Running, path: str, **options: Any) -> httpx.Response:
    async with httpx.AsyncClient(base_url=service.http) as client:
        return await client.get(path, **options)
