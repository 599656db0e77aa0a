"""The application: every route of the service around one engine."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable

from starlette.applications import Starlette
from starlette.middleware import Middleware

from engine.api import Engine
from streamer.config import ServerConfig
from streamer.protocols.deepgram import file_route as deepgram_file
from streamer.protocols.deepgram import route as deepgram
from streamer.protocols.native import route as native
from streamer.protocols.openai import route as openai
from streamer.protocols.openai.realtime import route as openai_realtime
from streamer.protocols.twilio import route as twilio
from streamer.protocols.whisperlive import route as whisperlive
from streamer.service import Service
from streamer.transport.access_gate import Gate
from streamer.web import document, health, page, status, unknown_path

# each has routes(service)
PROTOCOLS = (native, deepgram, deepgram_file, twilio, whisperlive, openai, openai_realtime)
ROUTES = (health, status, *PROTOCOLS, document)


def create_app(load_engine: Callable[[], Engine], config: ServerConfig) -> Starlette:
    """Build the application.

    Args:
        load_engine: called once, in a thread, when the application starts; what it raises is
            found in `app.state.service.failure`. The caller closes the engine.
        config: what holds for all sessions.
    """
    service = Service(config, load_engine)

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        async with service.run():
            yield

    routes = [route for module in ROUTES for route in module.routes(service)]
    app = Starlette(
        # the page and wrong paths take what is left
        routes=[*routes, unknown_path.mount(routes, page.create_page())],
        middleware=[Middleware(Gate, service=service)],
        lifespan=lifespan,
    )
    app.state.service = service
    return app
