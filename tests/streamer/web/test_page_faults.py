"""The page in a browser: a lost microphone, the last words, and a talk of twelve minutes."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.support.browser import FAKE_DEVICE, browser_page, download, wait_notice, wait_state
from tests.support.running_service import running

pytestmark = [pytest.mark.browser, pytest.mark.timeout(400)]

# keeps the stream that the page is given, for a test to end it as the system does
KEEP_STREAM = """
const ask = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
navigator.mediaDevices.getUserMedia = async (wanted) => (window.given = await ask(wanted));
"""


async def test_a_microphone_that_is_unplugged_is_said_and_ends_the_session() -> None:
    async with running() as service, browser_page(*FAKE_DEVICE) as page:
        await page.add_init_script(KEEP_STREAM)
        await page.goto(service.http)
        await page.click("#start")
        await wait_state(page, "live")
        async with asyncio.timeout(30):
            while service.service.num_sessions != 1:
                await asyncio.sleep(0.02)
        await page.evaluate("given.getTracks()[0].dispatchEvent(new Event('ended'))")
        await wait_notice(page, "microphone was disconnected")
        await wait_state(page, "idle")
        async with asyncio.timeout(30):
            while service.service.num_sessions:
                await asyncio.sleep(0.02)


async def test_the_page_waits_for_the_last_words(microphone: list[str]) -> None:
    received: list[dict[str, Any]] = []
    async with running() as service, browser_page(*microphone) as page:

        def watch(socket: Any) -> None:
            socket.on("framereceived", lambda frame: received.append(json.loads(frame)))

        page.on("websocket", watch)
        await page.goto(service.http)
        await page.click("#start")
        await page.wait_for_selector("#lines p")
        await page.click("#start")  # in the middle of what is said
        await wait_state(page, "idle")
        shown = (await page.inner_text("#lines")).split()
    assert received[-1]["type"] == "done"
    finals = [message["text"] for message in received if message["type"] == "final"]
    assert shown == " ".join(finals).split() != []


async def test_after_twelve_minutes_the_first_line_is_still_there() -> None:
    lines = [f"Sentence number {number}." for number in range(240)]

    async def serve(socket: Any) -> None:
        def answer(message: str | bytes) -> None:
            if isinstance(message, bytes) or json.loads(message)["type"] == "end":
                return
            socket.send(json.dumps({"type": "ready", "session": "s", "seq": 0}))
            for number, text in enumerate(lines):
                span = {"start": 3.0 * number, "end": 3.0 * number + 2.5}
                final = {"type": "final", "channel": 0, "segment": number, "text": text, **span}
                socket.send(json.dumps({**final, "words": None, "seq": number + 1}))

        socket.on_message(answer)

    async with running() as service, browser_page(*FAKE_DEVICE) as page:
        await page.route_web_socket("**/v1/stream", serve)
        await page.goto(service.http)
        await page.click("#start")
        await page.wait_for_selector(f"#lines p:nth-child({len(lines)})")
        assert (await page.inner_text("#lines p:first-child")).strip() == lines[0]
        assert (await download(page, "txt")).split("\n")[: len(lines)] == lines
