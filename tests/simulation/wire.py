"""A WebSocket without a network: ASGI on one side, a client on the other."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from typing import Any

from starlette.applications import Starlette

from streamer.protocol import PATH

SOCKET_BYTES = 64 * 1024  # that lie between client and service, besides one message


class Wire:
    """One WebSocket, seen from its client; `cut` breaks it."""

    def __init__(self, app: Starlette) -> None:
        self._to_service: deque[dict[str, Any]] = deque([{"type": "websocket.connect"}])
        self._from_service: deque[dict[str, Any]] = deque()
        self._changed = asyncio.Condition()
        self._is_cut = False
        self._is_served = False  # all of it
        scope = {
            "type": "websocket",
            "path": PATH,
            "query_string": b"",
            "headers": [],
            "subprotocols": [],
            "extensions": {"websocket.http.response": {}},
        }
        self._task = asyncio.create_task(self._serve(app, scope))

    async def _serve(self, app: Starlette, scope: dict[str, Any]) -> None:
        try:
            await app(scope, self._receive, self._send)
        finally:
            self._is_served = True
            async with self._changed:
                self._changed.notify_all()

    async def send(self, message: str | bytes) -> bool:
        """Send a message once there is room; return False where the connection is gone."""
        async with self._changed:
            await self._changed.wait_for(
                lambda: self._is_over or sum(map(_size, self._to_service)) < SOCKET_BYTES
            )
            if self._is_over:
                return False
            kind = "text" if isinstance(message, str) else "bytes"
            self._to_service.append({"type": "websocket.receive", kind: message})
            self._changed.notify_all()
        return True

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message of the service; None where the connection is gone."""
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: self._from_service or self._is_over)
                if not self._from_service:
                    return None
                message = self._from_service.popleft()
            if message["type"] == "websocket.send":
                found: dict[str, Any] = json.loads(message["text"])
                return found

    async def cut(self) -> None:
        """Break the connection: what lies in it is lost, and neither side is told at once."""
        async with self._changed:
            self._is_cut = True
            self._to_service.clear()
            self._to_service.append({"type": "websocket.disconnect", "code": 1006})
            self._from_service.clear()
            self._changed.notify_all()

    async def wait_closed(self) -> None:
        await self._task

    @property
    def _is_over(self) -> bool:
        return self._is_cut or self._is_served

    async def _receive(self) -> dict[str, Any]:
        async with self._changed:
            await self._changed.wait_for(lambda: self._to_service)
            self._changed.notify_all()
            return self._to_service.popleft()

    async def _send(self, message: dict[str, Any]) -> None:
        if self._is_cut:
            raise OSError("the connection is cut")
        async with self._changed:
            self._from_service.append(message)
            self._changed.notify_all()


def _size(message: dict[str, Any]) -> int:
    return len(message.get("bytes") or message.get("text") or "")
