"""Every window is counted by how it ended, and finals report their delay."""

from __future__ import annotations

import asyncio
import time

import numpy as np
import pytest

from engine.api import EngineBusy, Hypothesis, StreamLost, StreamOptions, Window
from streamer.operations.metered_engine import MeteredEngine
from streamer.operations.metrics import Metrics
from tests.support.engines import EchoEngine, EchoStream

OPTIONS = StreamOptions(language="en")


def window(prompt: str = "", *, is_final: bool = False, deadline: float = 1.0) -> Window:
    audio = np.zeros(16_000, np.float32)
    return Window(0, audio, prompt=prompt, is_final=is_final, deadline=deadline)


async def test_windows_pass_through_and_finals_report_their_delay() -> None:
    delays: list[float] = []
    metered = MeteredEngine(EchoEngine("echo"), Metrics(), delays.append)
    assert metered.info == EchoEngine("echo").info
    async with metered.stream(OPTIONS) as stream, EchoEngine("echo").stream(OPTIONS) as plain:
        asked = window("sleep 0.1", is_final=True)
        asked_at = time.monotonic()
        heard = await stream.decode(asked)
        elapsed_s = time.monotonic() - asked_at
        assert heard == await plain.decode(asked)
        await stream.decode(window())
        # of a whole file, for which no client waits
        await stream.decode(window(is_final=True, deadline=float("inf")))
    assert len(delays) == 1 and 0.1 <= delays[0] <= elapsed_s


@pytest.mark.parametrize("prompt", ["busy", "bug"])
async def test_what_goes_wrong_is_counted_and_raised(prompt: str) -> None:
    metrics, delays = Metrics(), list[float]()
    async with MeteredEngine(EchoEngine("echo"), metrics, delays.append).stream(OPTIONS) as stream:
        with pytest.raises((EngineBusy, KeyError)):
            await stream.decode(window(prompt, is_final=True))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await stream.decode(window("sleep 9"))
    text = metrics.render().decode()
    outcome = {"busy": "busy", "bug": "failed"}[prompt]
    assert f'windows_total{{kind="final",outcome="{outcome}"}} 1.0' in text
    assert 'windows_total{kind="partial",outcome="cancelled"} 1.0' in text
    assert not delays


async def test_a_lost_stream_is_counted_as_that(monkeypatch: pytest.MonkeyPatch) -> None:
    async def lose(_self: EchoStream, _window: Window) -> Hypothesis:
        raise StreamLost("gone")

    monkeypatch.setattr(EchoStream, "decode", lose)
    metrics = Metrics()
    async with MeteredEngine(EchoEngine("echo"), metrics, lambda _: None).stream(OPTIONS) as stream:
        with pytest.raises(StreamLost):
            await stream.decode(window())
    assert 'outcome="lost"} 1.0' in metrics.render().decode()
