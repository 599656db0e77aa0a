"""Bodies as a server hands them over, with a client that does as it is told."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

import pytest
from starlette.requests import ClientDisconnect, Request

from streamer.transport.upload import UploadError, read_body, watch


def request(*pieces: bytes, length: int | None = None, is_whole: bool = True) -> Request:
    messages: list[dict[str, Any]] = [
        {"type": "http.request", "body": piece, "more_body": True} for piece in pieces
    ]
    messages += [{"type": "http.request"}] if is_whole else [{"type": "http.disconnect"}]

    async def receive() -> dict[str, Any]:
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    headers = [] if length is None else [(b"content-length", str(length).encode())]
    return Request({"type": "http", "method": "POST", "headers": headers}, receive)


async def test_pieces_come_as_they_were_sent() -> None:
    body = read_body(request(b"ab", b"c"), 3)
    assert [piece async for piece in body if piece] == [b"ab", b"c"]


@pytest.mark.parametrize("length", [None, 2, 5])
async def test_too_large_a_body_is_refused_whatever_it_announces(length: int | None) -> None:
    with pytest.raises(UploadError, match="at most 4 bytes") as caught:
        async for _ in read_body(request(b"abc", b"de", length=length), 4):
            pass
    assert caught.value.status is HTTPStatus.REQUEST_ENTITY_TOO_LARGE


async def test_a_body_that_does_not_go_on_is_given_up() -> None:
    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    stalled = Request({"type": "http", "method": "POST", "headers": []}, receive)
    with pytest.raises(UploadError, match="next bytes") as caught:
        async for _ in read_body(stalled, 4, stall_timeout_s=0.0):
            pass
    assert caught.value.status is HTTPStatus.REQUEST_TIMEOUT


async def test_a_client_that_leaves_is_noticed() -> None:
    with pytest.raises(ClientDisconnect):
        async for _ in read_body(request(b"a", is_whole=False), 4):
            pass
    with pytest.raises(ClientDisconnect):
        await watch(request(is_whole=False))
