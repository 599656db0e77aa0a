"""A small message that holds hours of audio costs no more memory than any other."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from websockets.asyncio.client import connect

from tests.faults.victim import Victim, victim
from tests.support.bombs import flac_bomb, opus_bomb

MAX_PEAK_BYTES = 200 << 20  # of the whole service, its libraries included
MESSAGE_BYTES = 8 << 20
HEARD_S = 600.0  # by then a decoder that runs ahead would have filled the memory


def peak_bytes(service: Victim) -> int:
    status = Path(f"/proc/{service.process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None, status
    return int(found[1]) * 1024


@pytest.mark.parametrize("path", ["/v1/stream?encoding=container", "/v1/listen"])
@pytest.mark.parametrize("make", [flac_bomb, opus_bomb])
async def test_one_message_of_silence_stays_under_200_mib(make: object, path: str) -> None:
    assert callable(make)
    content = await asyncio.to_thread(make, MESSAGE_BYTES)
    async with victim("--no-calibrate") as service:
        async with connect(service.ws + path, compression=None, max_size=None) as socket:
            await socket.send(content)
            async with asyncio.timeout(90):
                while (await service.metrics())["wordwire_audio_seconds_total"] < HEARD_S:
                    await asyncio.sleep(0.1)
            peak = peak_bytes(service)
            socket.transport.abort()
        print(f"{path}: {peak / 2**20:.0f} MiB")
        await service.wait_idle()
        assert peak < MAX_PEAK_BYTES
        assert not service.tracebacks, service.tracebacks
