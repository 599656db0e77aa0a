"""What no route serves: a wrong path is 404 with the right one, a wrong method 405, in JSON.

Holds for HTTP and WebSocket alike, and for every API: the error is written for every vendor's
client. The page's files, which have no routes of their own, are served on the way.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from streamer.access.refusal import Refusal

MAX_SEGMENTS = 8  # of a path that is looked at; ours have at most four


class UnknownPath:
    """Stands behind all routes."""

    def __init__(self, routes: Sequence[BaseRoute], files: ASGIApp) -> None:
        """Set up.

        Args:
            routes: all that are served.
            files: what serves the page; raises HTTPException for a file that it does not have.
        """
        self._http = [route for route in routes if isinstance(route, Route)]
        self._sockets = [route for route in routes if isinstance(route, WebSocketRoute)]
        self._files = files

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        headers: dict[str, str] = {}
        if scope["type"] == "websocket":
            refusal = self._refuse_socket(path)
        elif (methods := self._methods(path)) is not None:
            refusal, headers = _wrong_method(scope["method"], path, methods)
        else:
            try:
                await self._files(scope, receive, send)
            except HTTPException as error:
                if path == "/" and error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
                    refusal, headers = _wrong_method(scope["method"], path, {"GET", "HEAD"})
                else:
                    refusal = self._not_found(path, self._http, self._sockets)
            else:
                return
        response = JSONResponse(refusal.body, status_code=refusal.status, headers=headers)
        await response(scope, receive, send)

    def _methods(self, path: str) -> set[str] | None:
        """Return the methods of a path over HTTP, none where it is a socket's; None: unknown."""
        found = [route.methods or set() for route in self._http if route.path_regex.match(path)]
        if found:
            return set().union(*found)
        is_page = path == "/"  # clients of WhisperLive connect there
        return set() if not is_page and _matches(self._sockets, path) else None

    def _refuse_socket(self, path: str) -> Refusal:
        if _matches(self._http, path):
            return Refusal(
                HTTPStatus.METHOD_NOT_ALLOWED,
                "method_not_allowed",
                f"{path!r:.80} is served over HTTP, not over WebSocket",
            )
        return self._not_found(path, self._sockets, self._http)

    def _not_found(
        self, path: str, wanted: Sequence[BaseRoute], others: Sequence[BaseRoute]
    ) -> Refusal:
        """Name the path that was meant: of the same kind, else of the other."""
        text = f"the path {path!r:.80} does not exist here"
        for routes in (wanted, others):
            if (meant := _guess(path, routes)) is not None:
                over = "WebSocket" if routes and isinstance(routes[0], WebSocketRoute) else "HTTP"
                return _unknown(f"{text}, expected {meant} (over {over})")
        listed = ", ".join(sorted({_path(route) for route in wanted} - {"/"}))
        return _unknown(f"{text}, expected one of {listed}")


def _unknown(message: str) -> Refusal:
    return Refusal(HTTPStatus.NOT_FOUND, "unknown_path", message)


def _wrong_method(method: str, path: str, methods: set[str]) -> tuple[Refusal, dict[str, str]]:
    if not methods and method in ("GET", "HEAD"):
        return Refusal(
            HTTPStatus.UPGRADE_REQUIRED, "upgrade_required", f"{path!r:.80} is a WebSocket"
        ), {"Upgrade": "websocket", "Connection": "Upgrade"}
    allowed = ", ".join(sorted(methods or {"GET"}))
    return Refusal(
        HTTPStatus.METHOD_NOT_ALLOWED,
        "method_not_allowed",
        f"expected {allowed} for {path!r:.80}, got {method!r:.20}",
    ), {"Allow": allowed}


def _guess(path: str, routes: Iterable[BaseRoute]) -> str | None:
    """Return the path that is most likely meant, or None."""
    routes = list(routes)
    for candidate in _variants(path):
        if _matches(routes, candidate):
            return candidate
    known = [_path(route) for route in routes if _path(route) != "/"]
    return next(iter(difflib.get_close_matches(path.lower(), known, 1, 0.75)), None)


def _variants(path: str) -> Iterator[str]:
    """Write a path as it may be meant: without what a wrong base URL puts in front, or adds."""
    segments = [segment for segment in path.split("/") if segment][:MAX_SEGMENTS]
    for cased in (segments, [segment.lower() for segment in segments]):
        for first in range(len(cased)):
            rest = "/" + "/".join(cased[first:])
            yield rest
            yield "/v1" + rest


def _matches(routes: Iterable[BaseRoute], path: str) -> bool:
    return any(route.path_regex.match(path) for route in routes if isinstance(route, _PATHS))


def _path(route: BaseRoute) -> str:
    assert isinstance(route, _PATHS)
    return route.path


_PATHS = (Route, WebSocketRoute)


def mount(routes: Sequence[BaseRoute], files: ASGIApp) -> Mount:
    """Serve what the routes leave; must stand last."""
    return Mount("/", UnknownPath(routes, files))
