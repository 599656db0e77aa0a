from __future__ import annotations

import threading
from collections.abc import AsyncIterator

import numpy as np
import pytest

from streamer.audio.error import AudioError
from streamer.audio.pcm import AudioFormat
from streamer.protocols.native.audio_input import CONTAINER, AudioInput
from tests.support.audio import riff


async def joined(pieces: AsyncIterator[bytes]) -> bytes:
    return b"".join([piece async for piece in pieces])


async def test_raw_samples_go_through_as_they_are() -> None:
    async with AudioInput("mulaw", 8000, 2) as audio:
        assert audio.is_raw and audio.format == AudioFormat("mulaw", 8000, 2)
        assert await joined(audio.decode(b"\x01\x02\x03")) == b"\x01\x02\x03"
        assert await joined(audio.flush()) == b""


@pytest.mark.parametrize("channels", [1, 2])
async def test_a_container_becomes_interleaved_samples(channels: int) -> None:
    data = riff(np.arange(channels * 8000, dtype="<i2").tobytes(), channels=channels)
    async with AudioInput(CONTAINER, 48_000, channels) as audio:
        assert audio.format == AudioFormat("pcm_f32le", 16_000, channels)
        decoded = b"".join(
            [await joined(audio.decode(data[at : at + 999])) for at in range(0, len(data), 999)]
        )
        decoded += await joined(audio.flush())
    samples = np.frombuffer(decoded, "<f4") * 32768
    assert np.array_equal(samples, np.arange(channels * 8000, dtype="<i2"))


async def test_what_is_no_audio_raises_and_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    async with AudioInput(CONTAINER, 16_000, 1) as audio:
        with pytest.raises(AudioError):
            await joined(audio.decode(b"this is text" * 10))
            await joined(audio.flush())
    started = set(threading.enumerate()) - before
    assert all(thread.name.startswith("asyncio_") for thread in started)  # the loop's own pool


def test_an_encoding_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="encoding"):
        AudioInput("mp3", 16_000, 1)
