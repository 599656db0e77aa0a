"""The protocol that docs/adding-a-protocol.md builds, served as it stands there."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
import types

import pytest
import websockets

from streamer.app import create_app
from streamer.config import ServerConfig
from streamer.transport.server_process import Server, listen
from tests.support.audio import babble, pcm16, quiet
from tests.support.documented_example import ROOT
from tests.support.engines import CountingEngine

PAGE = (ROOT / "docs/adding-a-protocol.md").read_text()
FOLDER = "streamer.protocols.lines"


@pytest.fixture
def route(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """Import the page's modules under the names that it gives them."""
    monkeypatch.setitem(sys.modules, FOLDER, types.ModuleType(FOLDER))
    blocks = re.findall(r"`streamer/protocols/lines/(\w+)\.py`:\n\n```python\n(.*?)```", PAGE, re.S)
    assert [name for name, _ in blocks] == ["session", "route"]
    for name, code in blocks:
        module = types.ModuleType(f"{FOLDER}.{name}")
        monkeypatch.setitem(sys.modules, module.__name__, module)
        exec(compile(code, f"{name}.py", "exec"), module.__dict__)
    return module


async def _converse(route: types.ModuleType, messages: list[bytes | str]) -> tuple[list[str], int]:
    """Send messages to the page's protocol; return its answers and the close code."""
    config = ServerConfig(port=0, drain_timeout_s=2.0, calibrate=False)
    app = create_app(CountingEngine, config)
    app.router.routes[:0] = route.routes(app.state.service)
    with listen(config) as listener:
        server = Server(app, app.state.service, config)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            await app.state.service.wait_loaded()
            url = f"ws://127.0.0.1:{listener.getsockname()[1]}/v1/lines"
            async with websockets.connect(url) as socket:
                for message in messages:
                    await socket.send(message)
                answers = []
                with contextlib.suppress(websockets.ConnectionClosed):
                    while True:
                        answers.append(str(await socket.recv()))
                return answers, socket.close_code or 0
        finally:
            server.should_exit = True
            await serving


async def test_it_writes_a_line_for_each_segment(route: types.ModuleType) -> None:
    talk = [quiet(1.0), babble(2.0), quiet(2.0), babble(1.5, seed=2)]
    answers, code = await _converse(route, [*map(pcm16, talk), "end"])
    assert (answers, code) == (["w2 w3 w4 w5", "w10 w11 w12"], 1000)


async def test_what_it_does_not_know_is_a_fault_of_the_client(route: types.ModuleType) -> None:
    answers, code = await _converse(route, ["hello"])
    assert (answers, code) == (["error: expected audio or 'end', got 'hello'"], 1008)
