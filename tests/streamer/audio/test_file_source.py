from __future__ import annotations

import asyncio
import contextlib
import io
import threading

import numpy as np
import pytest

from streamer.audio.error import AudioError
from streamer.audio.file_source import BLOCK, Recording
from streamer.audio.probe import RawFormat
from tests.support.audio import riff


def wav(num_samples: int) -> io.BytesIO:
    return io.BytesIO(riff(np.arange(num_samples, dtype="<i2").tobytes()))


async def test_a_file_comes_in_blocks_and_tells_its_duration() -> None:
    recording = Recording(wav(3 * BLOCK + 5))
    lengths = [len(block) async for block in recording.blocks()]
    assert sum(lengths) == recording.duration == 3 * BLOCK + 5
    assert all(BLOCK <= length < BLOCK + 16_000 for length in lengths[:-1])


async def test_raw_samples_are_read_as_declared() -> None:
    data = np.full(1000, 16_384, "<i2").tobytes()
    recording = Recording(io.BytesIO(data), RawFormat("s16le", 16_000, 1))
    (block,) = [block async for block in recording.blocks()]
    assert np.allclose(block, 0.5) and len(block) == 1000


async def test_what_is_no_audio_raises() -> None:
    with pytest.raises(AudioError):
        async for _ in Recording(io.BytesIO(b"no sound")).blocks():
            pass


class _Slow(io.BytesIO):
    """Returns nothing before it is let go; knows whether it is being read."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.is_read = False
        self.begun, self.let_go = threading.Event(), threading.Event()

    def read(self, size: int | None = -1, /) -> bytes:
        assert not self.closed
        self.is_read = True
        self.begun.set()
        assert self.let_go.wait(30)
        self.is_read = False
        return super().read(size)


async def test_a_file_is_not_read_any_more_once_its_blocks_are_closed() -> None:
    file = _Slow(wav(20 * BLOCK).getvalue())
    recording = Recording(file)

    async def read() -> None:
        async with contextlib.aclosing(recording.blocks()) as blocks:
            async for _ in blocks:
                pass

    reading = asyncio.create_task(read())
    assert await asyncio.to_thread(file.begun.wait, 30)
    reading.cancel()
    asyncio.get_running_loop().call_later(0.05, file.let_go.set)
    with contextlib.suppress(asyncio.CancelledError):
        await reading
    assert not file.is_read
    file.close()
    await asyncio.sleep(0.1)
