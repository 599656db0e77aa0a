"""The engine dies or hangs under live streams, and no word is lost."""

from __future__ import annotations

import asyncio
import contextlib
import signal

import httpx
import pytest

from tests.faults.speaker import speak, speech, words_of
from tests.faults.victim import victim

NUM_CLIENTS = 6
NUM_SENTENCES = 3


async def test_killing_the_engine_twice_loses_no_word() -> None:
    async with victim("--cost-s=0.05") as service:
        speaking = [
            asyncio.create_task(speak(service.ws, speech(NUM_SENTENCES)))
            for _ in range(NUM_CLIENTS)
        ]
        await service.wait_open(NUM_CLIENTS)
        for number, pause_s in enumerate((0.6, 1.8)):  # within a sentence each
            await asyncio.sleep(pause_s)
            await service.wait_up(num_restarts=number)
            service.engine.send_signal(signal.SIGKILL)
        heard = await asyncio.gather(*speaking)
        for each in heard:
            # what is heard without the fault, word for word
            assert each.words == words_of(NUM_SENTENCES)
            assert each.close_code == 1000
        found = await service.metrics()
        assert found["wordwire_engine_restarts"] == 2
        assert found["wordwire_engine_up"] == 1
        assert not service.tracebacks


async def test_a_hung_engine_is_replaced_and_no_word_is_lost() -> None:
    async with victim("--engine-hang-s=1.5") as service:
        speaking = [
            asyncio.create_task(speak(service.ws, speech(NUM_SENTENCES)))
            for _ in range(NUM_CLIENTS)
        ]
        await service.wait_open(NUM_CLIENTS)
        await asyncio.sleep(0.6)
        hung = service.engine
        hung.send_signal(signal.SIGSTOP)
        heard = await asyncio.gather(*speaking)
        for each in heard:
            assert each.words == words_of(NUM_SENTENCES)
        assert not hung.is_running()


async def test_while_the_engine_is_away_newcomers_are_refused_and_probes_say_so() -> None:
    async with victim("--engine-hang-s=60") as service:
        speaking = asyncio.create_task(speak(service.ws, speech(NUM_SENTENCES)))
        await service.wait_open(1)
        await asyncio.sleep(0.6)
        async with httpx.AsyncClient(base_url=service.http) as client:
            async with asyncio.timeout(60):
                killed, status = 0, "ready"
                while status == "ready":
                    with contextlib.suppress(ValueError):  # none, or two that change places
                        if (engine := service.engine).pid != killed:
                            # a new one may be up before anyone has looked
                            engine.send_signal(signal.SIGKILL)
                            killed = engine.pid
                    status = (await client.get("/readyz")).json()["status"]
            assert status == "restarting"
            assert (await client.get("/healthz")).status_code == 200
            async with asyncio.timeout(60):
                while (await client.get("/readyz")).status_code != 200:
                    await asyncio.sleep(0.05)
        assert (await speaking).words == words_of(NUM_SENTENCES)


@pytest.mark.parametrize("pace", [1.0, 8.0])
async def test_a_transcript_is_the_same_at_any_pace(pace: float) -> None:
    """The measure for all others: what is heard without any fault."""
    async with victim() as service:
        heard = await speak(service.ws, speech(2), pace=pace)
        assert heard.words == words_of(2)
