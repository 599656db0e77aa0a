"""An engine is loaded beside the event loop, and decodes each way before anyone waits for it."""

from __future__ import annotations

import asyncio
import threading

import pytest

from engine.api import MAX_WINDOW, Window
from streamer.operations.loading import run_in_daemon, warm_up
from tests.support.engines import EchoEngine, EchoStream


async def test_the_loop_goes_on_while_something_is_loaded() -> None:
    released = threading.Event()

    def load() -> str:
        assert released.wait(30), "the loop stands still"
        return threading.current_thread().name

    loading = asyncio.create_task(run_in_daemon(load))
    for _ in range(5):
        await asyncio.sleep(0.01)
        assert not loading.done()
    released.set()
    assert await loading == "load-engine"


async def test_what_a_loader_raises_is_raised() -> None:
    def load() -> None:
        raise ValueError("expected a model")

    with pytest.raises(ValueError, match="expected a model"):
        await run_in_daemon(load)


async def test_a_load_that_nobody_waits_for_any_more_harms_nobody() -> None:
    released = threading.Event()
    loading = asyncio.create_task(run_in_daemon(released.wait))
    await asyncio.sleep(0.01)
    loading.cancel()
    await asyncio.gather(loading, return_exceptions=True)
    released.set()
    await asyncio.sleep(0.05)
    daemons = [thread for thread in threading.enumerate() if thread.name == "load-engine"]
    assert all(thread.daemon for thread in daemons)


async def test_warming_up_decodes_a_partial_and_a_final_with_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Window] = []
    decode = EchoStream.decode

    async def note(stream: EchoStream, window: Window) -> object:
        asked.append(window)
        return await decode(stream, window)

    monkeypatch.setattr(EchoStream, "decode", note)
    await warm_up(EchoEngine("echo"))
    assert [(w.is_final, w.word_times) for w in asked] == [(False, False), (True, True)]
    assert len(asked[-1].audio) == MAX_WINDOW  # takes the memory of the longest window at once
