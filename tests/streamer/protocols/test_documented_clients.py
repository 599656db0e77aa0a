"""The clients that docs/ shows, run as they stand there. Each page's own tests run the others."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import numpy as np
import pytest
import websockets

from tests.support.audio import babble, quiet, wav
from tests.support.documented_example import example_of, run_python
from tests.support.running_service import Running
from tests.support.twilio import CONNECTED, FRAMES, STOP, start

TALK = np.concatenate([quiet(1.0), babble(2.0), quiet(2.0), babble(1.5, seed=2)])


async def test_deepgram(service: Running, tmp_path: Path) -> None:
    pytest.importorskip("deepgram")
    path = tmp_path / "talk.wav"
    path.write_bytes(wav(TALK))
    out = await run_python(
        example_of("deepgram.md"), f"{service.host}:{service.port}", str(path), timeout_s=60
    )
    assert out.splitlines() == ["w2 w3 w4 w5", "w10 w11 w12"]


async def test_twilio(service: Running) -> None:
    reading = asyncio.create_task(
        run_python(example_of("twilio.md"), f"{service.host}:{service.port}", "CA1")
    )
    async with websockets.connect(f"{service.ws}/v1/twilio") as socket:
        for message in [CONNECTED, start(), *FRAMES, STOP]:
            await socket.send(message)
        await socket.wait_closed()
    assert sorted((await reading).splitlines()) == [
        "inbound w0 w1 w2 w3",
        "outbound w5 w6 w7 w8",
    ]
    assert json.loads(start())["start"]["callSid"] == "CA1"
