"""`/`: the page with a microphone button and captions. Its files lie in streamer/page."""

from __future__ import annotations

from pathlib import Path

from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

FOLDER = Path(__file__).parents[1] / "page"

HEADERS = {
    # nothing from elsewhere; the page talks to the service it came from alone
    "Content-Security-Policy": "default-src 'self'; connect-src 'self' ws: wss:; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'",
    "Permissions-Policy": "microphone=(self)",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",  # a new version shows at the next load; 304 where it is the same
}


class Page(StaticFiles):
    """The page's files. Raises HTTPException where there is no such file."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers.update(HEADERS)
        return response


def create_page() -> Page:
    """Serve the page's files, of which `/` is one."""
    return Page(directory=FOLDER, html=True)
