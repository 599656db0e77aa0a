"""`/openapi.json` and `/docs`: the HTTP endpoints, for machines and for people."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse
from starlette.routing import BaseRoute, Route

from streamer.service import Service
from streamer.web.openapi import DOCUMENT, render_page

# the page is plain HTML: nothing may run in it
HEADERS = {"Content-Security-Policy": "default-src 'none'", "X-Content-Type-Options": "nosniff"}


def routes(_service: Service) -> list[BaseRoute]:
    """Serve the description of the service's HTTP endpoints."""
    page = render_page()

    async def document(_request: Request) -> JSONResponse:
        return JSONResponse(DOCUMENT)

    async def docs(_request: Request) -> HTMLResponse:
        return HTMLResponse(page, headers=HEADERS)

    return [Route("/openapi.json", document), Route("/docs", docs)]
