"""The page in a real browser, with a recording for a microphone."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send
from websockets.asyncio.client import connect

from engine.api import Engine
from streamer.app import create_app
from streamer.config import ServerConfig
from streamer.transport.server_process import Server, listen
from streamer.web.page import FOLDER
from tests.support.browser import FAKE_DEVICE, browser_page, download, wait_notice, wait_state
from tests.support.cutting_proxy import relay
from tests.support.running_service import running
from tests.support.waiting import until

# a browser on a slow machine takes its time, several times in one test
pytestmark = pytest.mark.timeout(400)

# --- without a browser ----------------------------------------------------------------------------


async def test_the_page_and_its_files_are_served() -> None:
    async with running() as service, httpx.AsyncClient(base_url=service.http) as client:
        page = await client.get("/")
        assert page.status_code == 200 and "Wordwire" in page.text
        assert "default-src 'self'" in page.headers["content-security-policy"]
        for name in re.findall(r'(?:src|href)="([^"#]+)"', page.text):
            assert (await client.get(f"/{name}")).status_code == 200, name
        assert (await client.get("/nothing.js")).status_code == 404


def test_the_page_loads_nothing_from_elsewhere() -> None:
    for path in FOLDER.iterdir():
        text = path.read_text()
        text = text.replace("http://www.w3.org/2000/svg", "").replace("http://localhost", "")
        assert not re.search(r"(?:https?:)?//[\w-]+\.\w", text), path.name


# --- in a browser ---------------------------------------------------------------------------------


@pytest.mark.browser
async def test_words_appear_settle_and_can_be_downloaded(microphone: list[str]) -> None:
    async with running() as service, browser_page(*microphone) as page:
        await page.goto(service.http)
        await page.wait_for_selector("#language option[value=de]", state="attached")
        await page.focus("#start")
        await page.keyboard.press("Enter")
        await wait_state(page, "live")
        await page.wait_for_selector("#lines p")
        # what may change is on the page, but not read out
        await page.wait_for_selector("#lines .volatile[aria-hidden=true]", state="attached")
        await page.wait_for_selector("#lines p:nth-child(2)")
        assert int(await page.get_attribute("#level", "aria-valuenow")) >= 0
        await page.click("#start")
        await wait_state(page, "idle")
        assert await page.locator("#lines .volatile").count() == 0
        text = await page.inner_text("#lines")
        assert re.search(r"w\d+( w\d+)+", text)
        assert (await download(page, "txt")).split() == text.split()
        assert (await download(page, "vtt")).startswith("WEBVTT\n\n00:00:")
        assert re.match(r"1\n00:00:\d\d,\d{3} --> ", await download(page, "srt"))
        await page.click("#clear")
        assert await page.inner_text("#lines") == ""
        assert await page.is_disabled("[data-format=txt]")


@pytest.mark.browser
async def test_no_word_is_lost_when_the_connection_breaks(microphone: list[str]) -> None:
    async with running() as service, relay(service.port) as network:
        async with browser_page(*microphone) as page:
            await page.goto(f"http://localhost:{network.port}")
            await page.click("#start")
            await page.wait_for_selector("#lines p")
            network.is_open = False
            network.cut()
            assert "kept" in await wait_notice(page, "trying again")
            await asyncio.sleep(1.5)
            network.is_open = True
            await wait_state(page, "live")
            assert not await page.is_visible("#notice")
            await asyncio.sleep(2)
            await page.click("#start")
            await wait_state(page, "idle")
            clock = await page.inner_text("#clock")
        minutes, seconds = map(int, clock.split(":"))
        # the resumed session has all of the audio, that of the break included
        received_s = service.service.metrics.totals()["audio_seconds"]
        assert received_s == pytest.approx(60 * minutes + seconds, abs=1.5)


@pytest.mark.browser
async def test_a_full_server_is_said_and_tried_again(microphone: list[str]) -> None:
    config = ServerConfig(port=0, max_sessions=1, drain_timeout_s=2.0)
    async with running(config=config) as service, browser_page(*microphone) as page:
        async with connect(f"{service.ws}/v1/stream?language=en") as socket:
            await socket.recv()
            await page.goto(service.http)
            await page.click("#start")
            await wait_notice(page, "server is full")
        await wait_state(page, "live")


@pytest.mark.browser
@pytest.mark.parametrize(
    ("flags", "permissions", "address", "words"),
    [
        ([FAKE_DEVICE[0], "--deny-permission-prompts"], [], "localhost", "may not use"),
        (
            ["--use-fake-ui-for-media-stream"],
            ["microphone"],
            "localhost",
            "No microphone was found",
        ),
        (["--host-resolver-rules=MAP stage.test 127.0.0.1"], [], "stage.test", "https://"),
    ],
    ids=["denied", "absent", "insecure"],
)
async def test_what_is_in_the_way_of_the_microphone_is_said(
    flags: list[str], permissions: list[str], address: str, words: str
) -> None:
    async with running() as service, browser_page(*flags, permissions=permissions) as page:
        await page.goto(f"http://{address}:{service.port}")
        await page.click("#start")
        await wait_notice(page, words)
        await wait_state(page, "idle")


# notes what the page waits for, and lets it wait an eighth of that
HURRY = """
window.delays = [];
const later = window.setTimeout;
window.setTimeout = (call, ms) => (delays.push(ms), later(call, ms / 8));
"""


@pytest.mark.browser
async def test_close_codes_decide_whether_the_page_comes_back(microphone: list[str]) -> None:
    async with running() as service, browser_page(*microphone) as page:
        num_tries, code = 0, 1012

        async def slam(route: Any) -> None:
            nonlocal num_tries
            num_tries += 1
            await route.close(code=code, reason="go away")

        await page.add_init_script(HURRY)
        await page.route_web_socket(re.compile("/v1/stream"), slam)
        await page.goto(service.http)
        await page.click("#start")
        await until(lambda: num_tries == 4)
        delays = await page.evaluate("delays")
        # doubled each time, give or take the jitter
        assert len(delays) >= 3 and delays == sorted(set(delays)), delays
        code = 4001
        await wait_notice(page, "ended the session: go away")
        await wait_state(page, "idle")
        found = num_tries
        await asyncio.sleep(1.5)
        assert num_tries == found


@pytest.mark.browser
async def test_a_key_in_the_address_opens_the_page_and_its_socket(microphone: list[str]) -> None:
    config = ServerConfig(port=0, drain_timeout_s=2.0, api_keys=("open-sesame-1234",))
    async with running(config=config) as service, browser_page(*microphone) as page:
        await page.goto(f"{service.http}/?key=open-sesame-1234")
        await page.wait_for_selector("#language option[value=de]", state="attached")
        assert "key" not in page.url  # where others might read it
        await page.click("#start")
        await wait_state(page, "live")
        await page.reload()
        await page.wait_for_selector("#language option[value=de]", state="attached")


@pytest.mark.browser
async def test_the_page_works_under_a_path_of_a_proxy(microphone: list[str]) -> None:
    config = ServerConfig(port=0, drain_timeout_s=2.0)
    async with _running_under("/stt", config) as port, browser_page(*microphone) as page:
        await page.goto(f"http://localhost:{port}/stt/")
        await page.click("#start")
        await wait_state(page, "live")


@contextlib.asynccontextmanager
async def _running_under(path: str, config: ServerConfig) -> AsyncIterator[int]:
    """Serve like a proxy that hands everything below a path to the service, without the path."""
    from tests.support.engines import CountingEngine

    inner = create_app(CountingEngine, config)

    class Proxy:
        def __init__(self, app: ASGIApp) -> None:
            self._app = app

        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "lifespan":
                assert scope["path"].startswith(path + "/"), scope["path"]
                scope = {**scope, "path": scope["path"].removeprefix(path)}
            await self._app(scope, receive, send)

    listener = listen(config)
    server = Server(Proxy(inner), inner.state.service, config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        await inner.state.service.wait_loaded()
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        await serving


@pytest.mark.browser
@pytest.mark.model
async def test_a_person_reads_what_was_said(microphone: list[str], base_engine: Engine) -> None:
    async with running(lambda: base_engine) as service, browser_page(*microphone) as page:
        await page.goto(service.http)
        await page.click("#start")
        await page.wait_for_selector("#lines:has-text('fellow')")
        await page.wait_for_selector("#lines:has-text('country')")
        await page.click("#start")
        await wait_state(page, "idle")
        assert "my fellow americans" in (await page.inner_text("#lines")).lower()
