"""Getting an engine ready: loaded beside the event loop, and warm before the first caller."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar, cast

import numpy as np

from engine.api import MAX_WINDOW, SAMPLE_RATE, Engine, StreamOptions, Window

T = TypeVar("T")


async def run_in_daemon(function: Callable[[], T]) -> T:
    """Run in a thread that does not keep the process alive: loading may take minutes."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.done():  # the waiter is gone
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(cast("T", result))

    def run() -> None:
        result, error = None, None
        try:
            result = function()
        except BaseException as raised:
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed: the process ends
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, name="load-engine", daemon=True).start()
    return await future


async def warm_up(engine: Engine) -> None:
    """Decode once each way, so that the first caller does not wait for kernels and pools.

    The last window is as long as any will be: the memory that one stream needs is taken now.
    """
    noise = np.random.default_rng(0).normal(0, 1e-3, MAX_WINDOW)
    audio = noise.astype(np.float32)
    options = StreamOptions(language=engine.info.languages[0], temperatures=(0.0,))
    async with engine.stream(options) as stream:
        await stream.decode(Window(start=0, audio=audio[: 3 * SAMPLE_RATE]))
        await stream.decode(Window(start=0, audio=audio, is_final=True, word_times=True))
