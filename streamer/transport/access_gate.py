"""The gate in front of every route: whose requests pass, how many, and from which pages.

One ASGI middleware over HTTP and WebSocket alike, so that no protocol can forget it. A refusal is
an HTTP answer, for a socket before its handshake completes and before it takes any resource. What
was shown as a credential is taken out of the request here, so that nothing behind can repeat it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from http import HTTPStatus
from urllib.parse import quote

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketDisconnect

from streamer import wire
from streamer.access import origin
from streamer.access.credentials import (
    COOKIE,
    KEY_SCHEMES,
    Credentials,
    read_headers,
    split_path,
    split_query,
    split_subprotocols,
)
from streamer.access.host_names import is_expected, names_of
from streamer.access.keys import ANYONE, ApiKey, current_key, digest_of
from streamer.access.limits import Attempts
from streamer.access.refusal import Refusal, no_room
from streamer.service import Service
from streamer.transport.open_sockets import OpenSocket, OpenSockets

logger = logging.getLogger(__name__)

# probes have no keys, and learn nothing but whether the service is up
OPEN_PATHS = frozenset({"/healthz", "/readyz"})
COOKIE_LIFETIME_S = 12 * 3600  # a day's work in front of the page
SHOWN_DIGESTS = "wordwire.shown"  # in the scope: SHA-256 digests of what was shown as a credential


class Gate:
    """Lets requests through to an application, or refuses them."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service
        self._attempts = Attempts(service.config.max_failed_attempts)
        config = service.config
        self._sockets = OpenSockets(config.max_connections, config.max_connections_per_address)
        service.metrics.watch("open_sockets", "Sockets open now", lambda: len(self._sockets))
        service.keys.on_reload = lambda: self._sockets.close_revoked(service.access.is_valid)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        found = _take_credentials(scope)
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if path in OPEN_PATHS and scope["type"] == "http":
            await self._app(scope, receive, send)
            return
        page = _header(scope, b"origin")
        host = _header(scope, b"host") or ""
        if (refusal := self._page_refusal(page, host)) is not None:
            await self._refuse(scope, send, refusal)
            return
        if page is not None and not origin.is_same(page, host):
            if (asked := _preflight(scope)) is not None:
                headers = origin.preflight_headers(page, asked)
                await _respond(scope, send, HTTPStatus.NO_CONTENT, headers, b"")
                return
            send = _with_headers(send, origin.cors_headers(page))
        key = self._identify(scope, found)
        if isinstance(key, Refusal):
            await self._refuse(scope, send, key)
            return
        current_key.set(key)
        if scope["type"] == "websocket":
            await self._pass_socket(scope, receive, send, key, found)
            return
        if found.from_browser_url and key is not ANYONE and _wants_page(scope):
            send = _with_headers(send, [self._cookie(scope, key)])
        await self._run(scope, receive, self._counting(send), self._counting(send))

    def _page_refusal(self, page: str | None, host: str) -> Refusal | None:
        """Return why a page, if it is one, may not use the service."""
        config = self._service.config
        # a page that has its own name resolve to us has no key, if there are keys
        names = (*config.allowed_hosts, config.host, *names_of(config.allowed_origins))
        if not self._service.access.is_required and not is_expected(host, names):
            return Refusal(
                HTTPStatus.FORBIDDEN,
                "forbidden_host",
                f"this service has no keys and is not known as {host!r:.80} (allowed_hosts)",
            )
        if page is not None and not origin.is_allowed(page, host, config.allowed_origins):
            return Refusal(
                HTTPStatus.FORBIDDEN, "forbidden_origin", "this page may not use the service"
            )
        return None

    def _identify(self, scope: Scope, found: Credentials) -> ApiKey | Refusal:
        access = self._service.access
        if not access.is_required:
            return ANYONE
        shown = found.candidates + ([found.cookie] if found.cookie else [])
        if (key := access.identify(shown, time.time())) is not None:
            return key  # whatever others of its address try, it passes
        if not shown:
            # not a guess: a page's first request, or a scraper's
            return Refusal(HTTPStatus.UNAUTHORIZED, "invalid_api_key", "an API key is needed")
        address, now = _address(scope), time.monotonic()
        if wait_s := self._attempts.wait_s(address, now):
            return Refusal(
                HTTPStatus.TOO_MANY_REQUESTS,
                "too_many_attempts",
                "too many requests without a valid key",
                wait_s,
            )
        self._attempts.fail(address, now)
        return Refusal(HTTPStatus.UNAUTHORIZED, "invalid_api_key", "this key is not valid")

    async def _pass_socket(
        self, scope: Scope, receive: Receive, send: Send, key: ApiKey, found: Credentials
    ) -> None:
        address = _address(scope)
        if not self._sockets.has_room(address):
            await self._refuse(scope, send, no_room("busy", "too many open sockets"))
            return
        counted = self._sending(send, found.subprotocols)
        async with self._sockets.hold(address, key, counted) as socket:
            await self._run(scope, self._receiving(receive, socket), counted, send)

    async def _run(self, scope: Scope, receive: Receive, send: Send, bare_send: Send) -> None:
        """Run the application; what it raises is logged once, and answered like a refusal.

        Args:
            bare_send: where the answer goes, with the headers of every answer.
        """
        has_begun = False

        async def noting(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, noting)
        except (ClientDisconnect, WebSocketDisconnect):
            logger.debug("%s: the client left", scope["path"])
        except Exception:
            logger.exception("%s failed", scope["path"])
            if not has_begun:
                what = Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", "internal error")
                await self._refuse(scope, bare_send, what)
            elif scope["type"] == "websocket":
                with contextlib.suppress(OSError, RuntimeError):  # it is closed already
                    await send({"type": "websocket.close", "code": wire.CLOSE_INTERNAL})
            # else the server breaks off an answer that is not complete

    def _receiving(self, receive: Receive, socket: OpenSocket) -> Receive:
        """Count the closes that clients ask for."""

        async def wrapped() -> Message:
            message = await receive()
            if message["type"] == "websocket.disconnect" and socket.closing is None:
                self._service.metrics.closed(message.get("code", 1005), by_client=True)
            return message

        return wrapped

    def _sending(self, send: Send, offered: list[str]) -> Send:
        """Complete what protocols need not know of: the key's subprotocol, and the restart."""
        # a browser that offered subprotocols breaks off unless one of them is chosen
        scheme = next((name for name in offered if name.lower() in KEY_SCHEMES), None)

        async def wrapped(message: Message) -> None:
            if message["type"] == "websocket.accept" and not message.get("subprotocol"):
                message = {**message, "subprotocol": scheme}
            elif (
                message["type"] == "websocket.close"
                and message.get("code", wire.CLOSE_NORMAL) == wire.CLOSE_NORMAL
                and self._service.draining.is_set()
            ):
                message = {**message, "code": wire.CLOSE_RESTART, "reason": "restarting"}
            if message["type"] == "websocket.close":
                code = message.get("code", wire.CLOSE_NORMAL)
                self._service.metrics.closed(code, by_client=False)
            elif message["type"] == "websocket.http.response.start":
                self._service.metrics.refused(str(message["status"]))
            await send(message)

        return wrapped

    def _counting(self, send: Send) -> Send:
        async def wrapped(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._service.metrics.responded(message["status"])
            await send(message)

        return wrapped

    def _cookie(self, scope: Scope, key: ApiKey) -> tuple[bytes, bytes]:
        """Let the page's own files and sockets in, for which a browser does not ask again.

        Without a path the cookie holds for the page's folder, whatever a proxy calls it.
        """
        token = self._service.access.signer.mint_cookie(key, time.time(), COOKIE_LIFETIME_S)
        secure = "; Secure" if scope.get("scheme") == "https" else ""
        text = f"{COOKIE}={token.value}; HttpOnly; SameSite=Strict; Max-Age={COOKIE_LIFETIME_S}"
        return b"set-cookie", (text + secure).encode()

    async def _refuse(self, scope: Scope, send: Send, refusal: Refusal) -> None:
        self._service.metrics.refused(refusal.code)
        logger.debug("refused %s from %s: %s", scope["path"], _address(scope), refusal.code)
        headers = [
            (name.lower().encode(), value.encode()) for name, value in refusal.headers.items()
        ]
        headers.append((b"content-type", b"application/json"))
        if refusal.status is HTTPStatus.UNAUTHORIZED:
            # a person in front of a browser is asked for the key, as a password
            scheme = b"Basic" if scope["type"] == "http" and _wants_page(scope) else b"Bearer"
            headers.append((b"www-authenticate", scheme + b' realm="wordwire"'))
        await _respond(scope, send, refusal.status, headers, json.dumps(refusal.body).encode())


def _take_credentials(scope: Scope) -> Credentials:
    found = read_headers(scope["headers"])
    query = split_query(scope["query_string"].decode("latin-1"), found)
    split_subprotocols(scope.get("subprotocols", []), found)
    # in place: what logs the request holds this very object
    scope["query_string"] = query.encode("latin-1")
    if scope["type"] == "websocket":
        scope["subprotocols"] = found.subprotocols
    path = split_path(scope["path"], found)
    if path != scope["path"]:
        scope["path"], scope["raw_path"] = path, quote(path).encode()
    secret = (b"authorization", b"x-api-key", b"cookie", b"sec-websocket-protocol")
    scope["headers"] = [(name, value) for name, value in scope["headers"] if name not in secret]
    # which token it was may matter to who made it; its digest lets nobody in
    scope[SHOWN_DIGESTS] = frozenset(digest_of(candidate) for candidate in found.candidates)
    return found


def _header(scope: Scope, wanted: bytes) -> str | None:
    for name, value in scope["headers"]:
        if name == wanted:
            text: str = value.decode("latin-1")
            return text
    return None


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""


def _preflight(scope: Scope) -> bytes | None:
    """Return the headers that a browser asks for before it sends a request, or None."""
    if scope["type"] != "http" or scope["method"] != "OPTIONS":
        return None
    if _header(scope, b"access-control-request-method") is None:
        return None
    return (_header(scope, b"access-control-request-headers") or "").encode("latin-1")


def _wants_page(scope: Scope) -> bool:
    return scope["method"] == "GET" and "text/html" in (_header(scope, b"accept") or "")


def _with_headers(send: Send, headers: list[tuple[bytes, bytes]]) -> Send:
    async def wrapped(message: Message) -> None:
        if message["type"] in ("http.response.start", "websocket.http.response.start"):
            message = {**message, "headers": [*message.get("headers", []), *headers]}
        await send(message)

    return wrapped


async def _respond(
    scope: Scope,
    send: Send,
    status: HTTPStatus,
    headers: list[tuple[bytes, bytes]],
    body: bytes,
) -> None:
    """Answer a request or a handshake."""
    prefix = "websocket.http" if scope["type"] == "websocket" else "http"
    if prefix != "http" and "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": wire.CLOSE_PROTOCOL_ERROR})
        return
    await send({"type": f"{prefix}.response.start", "status": int(status), "headers": headers})
    await send({"type": f"{prefix}.response.body", "body": body})
