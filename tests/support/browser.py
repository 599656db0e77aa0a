"""The page in a real browser, and what a test does with it."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
]
FAKE_DEVICE = ["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]


@contextlib.asynccontextmanager
async def browser_page(*flags: str, **context: Any) -> AsyncIterator[Any]:
    """Open a page; errors of its scripts fail the test."""
    playwright = pytest.importorskip("playwright.async_api")
    if not CHROMIUM:
        pytest.skip("Chromium is not on this machine")
    async with playwright.async_playwright() as driver:
        browser = await driver.chromium.launch(
            executable_path=CHROMIUM, args=[*FLAGS, *flags], headless=True, timeout=120_000
        )
        try:
            opened = await (await browser.new_context(**context)).new_page()
            errors: list[str] = []
            opened.on("pageerror", lambda error: errors.append(str(error)))
            opened.set_default_timeout(60_000)
            yield opened
            assert errors == []
        finally:
            await browser.close()


async def wait_state(page: Any, state: str) -> None:
    """Return once the page is in a state."""
    await page.wait_for_selector(f"body[data-state={state}]")


async def wait_notice(page: Any, words: str) -> str:
    """Return the notice once it has these words."""
    await page.wait_for_selector(f"#notice:has-text('{words}')")
    text: str = await page.inner_text("#notice")
    return text


async def download(page: Any, kind: str) -> str:
    """Download what was said as a kind of file; return its text."""
    async with page.expect_download() as downloading:
        await page.click(f"[data-format={kind}]")
    found = await downloading.value
    assert found.suggested_filename.endswith(f".{kind}")
    return Path(await found.path()).read_text()
