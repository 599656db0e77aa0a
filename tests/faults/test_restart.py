"""The service is replaced under its clients: they come back by themselves and lose nothing."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from clients import client, retry
from streamer.protocol import Final, Start
from tests.faults.speaker import PACKET_S, speech, words_of
from tests.faults.victim import Victim, victim
from tests.support.running_service import free_port

NUM_SENTENCES = 4
START = Start(language="en")


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "FIRST_DELAY_S", 0.2)


async def _talk(url: str, audio: bytes, pace: float) -> list[Final]:
    """Speak through the client library; returns the finals."""
    finals = []
    async with client.connect(url, START) as stream:

        async def send() -> None:
            size = int(PACKET_S * 32_000)
            start = asyncio.get_running_loop().time()
            for index, first in enumerate(range(0, len(audio), size)):
                due = start + index * PACKET_S / pace
                await asyncio.sleep(due - asyncio.get_running_loop().time())
                await stream.send(audio[first : first + size])
            await stream.end()

        sending = asyncio.create_task(send())
        try:
            async for message in stream:
                if isinstance(message, Final):
                    finals.append(message)
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
    return finals


async def _replace(first: Victim, port: int, stack: contextlib.AsyncExitStack) -> None:
    """Stop a service as a supervisor does, and start the next one at the same address."""
    code, _ = await first.stop()
    assert code == 0
    await stack.enter_async_context(victim(f"--port={port}", "--no-calibrate"))


async def test_clients_of_a_restarted_service_lose_no_word() -> None:
    port = free_port()
    async with (
        contextlib.AsyncExitStack() as stack,
        victim(f"--port={port}", "--no-calibrate") as first,
    ):
        talks = [
            asyncio.create_task(_talk(first.ws, speech(NUM_SENTENCES), pace=2.0)) for _ in range(5)
        ]
        await first.wait_open(5)
        await asyncio.sleep(2.1)  # within the second sentence
        await _replace(first, port, stack)
        for finals in await asyncio.gather(*talks):
            # the audio after the restart is a session of its own, whose half seconds count from 0
            assert sum(len(final.text.split()) for final in finals) >= 4 * NUM_SENTENCES - 1
            starts = [final.start for final in finals]
            assert starts == sorted(starts) and starts[-1] > 8


async def test_a_killed_service_costs_its_clients_no_word_either() -> None:
    port = free_port()
    async with (
        contextlib.AsyncExitStack() as stack,
        victim(f"--port={port}", "--no-calibrate") as first,
    ):
        talk = asyncio.create_task(_talk(first.ws, speech(NUM_SENTENCES), pace=2.0))
        await first.wait_open(1)
        await asyncio.sleep(2.1)
        first.process.kill()
        await first.process.wait()
        await stack.enter_async_context(victim(f"--port={port}", "--no-calibrate"))
        finals = await talk
        assert sum(len(final.text.split()) for final in finals) >= 4 * NUM_SENTENCES - 1
        assert finals[-1].start > 8
        assert words_of(1) == finals[0].text.split()
