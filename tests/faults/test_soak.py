"""Clients come and go, well-behaved or not, and nothing of them stays.

`WORDWIRE_SOAK_S=1800` makes it half an hour; the default is for every run of the tests.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import time

import httpx
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.faults.speaker import speak, speech, words_of
from tests.faults.victim import Victim, victim

SOAK_S = float(os.environ.get("WORDWIRE_SOAK_S", "6"))
NUM_WORKERS = 8


async def _come_and_go(service: Victim, draw: random.Random) -> bool:
    """Be one client; returns whether it is one that has to be understood."""
    kind = draw.choice(["good", "good", "gone", "silent", "garbage", "file", "realtime", "listen"])
    sentence = speech(1)
    match kind:
        case "good":
            # manual: on a busy machine a pause between two packets is no pause of the speaker
            heard = await speak(service.ws, sentence, pace=30, endpointing="manual")
            assert heard.words == words_of(1), heard.messages
        case "gone" | "silent" | "garbage":
            async with connect(f"{service.ws}/v1/stream", compression=None) as socket:
                if kind == "garbage":
                    for _ in range(draw.randrange(200)):
                        await socket.send(draw.choice(["{", '{"type":"x"}', b"\1" * 99]))
                elif kind == "gone":
                    await socket.send(
                        json.dumps({"type": "start", "resumable": draw.random() < 0.5})
                    )
                    await socket.send(sentence)
                socket.transport.abort()
        case "file":
            async with httpx.AsyncClient(timeout=30) as client:
                body = (
                    b"RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0\1\0\1\0\x80>\0\0\0}\0\0\2\0\x10\0data"
                )
                answer = await client.post(
                    f"{service.http}/v1/audio/transcriptions",
                    files={"file": ("a.wav", body + b"\xff\xff\xff\xff" + sentence)},
                    data={"model": "whisper-1", "language": "en"},
                )
                assert answer.status_code in (200, 503), answer.text
        case "realtime" | "listen":
            path = "/v1/realtime" if kind == "realtime" else "/v1/listen"
            async with connect(service.ws + path, compression=None) as socket:
                await socket.send('{"type":"KeepAlive"}')
                if draw.random() < 0.5:
                    await asyncio.wait_for(socket.recv(), 0.3)
    return kind == "good"


async def _settled(service: Victim) -> dict[str, float]:
    """Read the metrics once all that was opened is closed, or will not be any more."""
    found = await service.metrics()
    for _ in range(100):
        if not found["wordwire_open_sessions"] and not found["wordwire_open_sockets"]:
            break
        await asyncio.sleep(0.1)
        found = await service.metrics()
    return found


async def test_after_many_clients_the_service_is_as_it_was_before() -> None:
    options = ("--resume-grace-s=0.5", "--results-keep-s=1", "--cost-s=0.002", "--no-calibrate")
    # nobody is refused because the machine is busy with something else
    async with victim(*options, "--final-target-s=60") as service:
        num_good = num_all = 0

        async def work(seed: int, end: float) -> None:
            nonlocal num_good, num_all
            draw = random.Random(seed)
            while time.monotonic() < end:
                with contextlib.suppress(ConnectionClosed, InvalidStatus, TimeoutError):
                    is_good = await _come_and_go(service, draw)
                    num_good += is_good
                num_all += 1

        async def round_of(seconds: float, seed: int) -> None:
            end = time.monotonic() + seconds
            await asyncio.gather(*(work(seed + n, end) for n in range(NUM_WORKERS)))
            await service.wait_idle()
            await asyncio.sleep(2.5)  # what is kept for a while is dropped

        await round_of(SOAK_S / 3, 0)
        descriptors, resident = service.num_descriptors, service.resident_bytes
        await round_of(SOAK_S * 2 / 3, 1000)
        async with asyncio.timeout(30):  # what was closed is counted so a moment later
            while service.num_descriptors > descriptors + 3:
                await asyncio.sleep(0.1)
        grown = service.resident_bytes - resident
        print(f"{num_all} clients, {num_good} of them heard; memory {grown / 2**20:+.1f} MiB")
        assert num_good > SOAK_S / 2
        assert grown < 20 * 2**20, grown
        found = await _settled(service)
        assert found["wordwire_open_sessions"] == found["wordwire_open_sockets"] == 0
        assert found["wordwire_sessions_total"] == found["wordwire_sessions_closed_total"]
        assert not service.tracebacks, service.tracebacks
