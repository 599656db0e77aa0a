from __future__ import annotations

from starlette.routing import Mount, Route, WebSocketRoute

from streamer.app import create_app
from streamer.config import ServerConfig
from tests.support.engines import CountingEngine


def test_no_engine_is_loaded_before_the_application_runs() -> None:
    def load() -> CountingEngine:
        raise AssertionError("loaded too early")

    assert create_app(load, ServerConfig()).state.service.info is None


def test_every_path_is_served_by_one_protocol() -> None:
    app = create_app(CountingEngine, ServerConfig())
    seen = set()
    for route in app.routes:
        kind = "websocket" if isinstance(route, WebSocketRoute) else "http"
        methods = sorted(route.methods or ()) if isinstance(route, Route) else [""]
        for method in methods:
            name = (kind, method, getattr(route, "path", ""))
            assert name not in seen, name
            seen.add(name)
    assert ("websocket", "", "/v1/stream") in seen


def test_the_page_takes_what_no_other_route_knows() -> None:
    last = create_app(CountingEngine, ServerConfig()).routes[-1]
    assert isinstance(last, Mount) and last.path == ""
