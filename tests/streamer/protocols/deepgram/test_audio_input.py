from __future__ import annotations

import io
import threading

import numpy as np
import pytest
import soundfile

from engine.api import Samples
from streamer.audio.error import AudioError
from streamer.audio.pcm import AudioFormat
from streamer.protocols.deepgram.audio_input import DeepgramInput
from streamer.protocols.deepgram.options import parse_options
from tests.support.audio import pcm16

LEFT = (0.5 * np.sin(np.arange(16_000) * 0.2)).astype(np.float32)
RIGHT = (0.5 * np.sin(np.arange(16_000) * 0.05)).astype(np.float32)


def made(**query: str) -> DeepgramInput:
    return DeepgramInput(parse_options({name: [value] for name, value in query.items()}))


async def decode(source: DeepgramInput, data: bytes, size: int = 1000) -> Samples:
    """Decode in pieces; (T, C)."""
    async with source:
        parts = [
            part
            for first in range(0, len(data), size)
            async for part in source.decode(data[first : first + size])
        ]
        parts += [part async for part in source.flush()]
    samples = np.frombuffer(b"".join(parts), "<f4")
    return samples.reshape(-1, source.format.channels)


async def test_mono_passes_as_it_is() -> None:
    source = made(encoding="mulaw", sample_rate="8000")
    assert source.format == AudioFormat("mulaw", 8000, 1)
    async with source:
        assert [part async for part in source.decode(b"\x01\x02")] == [b"\x01\x02"]
        assert not [part async for part in source.flush()]


def test_channels_apart_pass_as_they_are() -> None:
    source = made(encoding="linear16", sample_rate="16000", channels="2", multichannel="true")
    assert source.format == AudioFormat("pcm_s16le", 16_000, 2)


@pytest.mark.parametrize("sign", [1.0, -1.0])
async def test_channels_together_are_mixed_and_nobody_is_lost(sign: float) -> None:
    source = made(encoding="linear16", sample_rate="16000", channels="2")
    assert source.format == AudioFormat("pcm_f32le", 16_000, 1)
    mixed = (await decode(source, pcm16(np.stack([LEFT, sign * LEFT], axis=1))))[:, 0]
    assert len(mixed) == 16_000
    assert np.abs(mixed[2000:]).max() == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("multichannel", ["true", "false"])
async def test_containers_give_the_channels_that_were_asked_for(multichannel: str) -> None:
    buffer = io.BytesIO()
    soundfile.write(buffer, np.stack([LEFT, RIGHT], axis=1), 16_000, format="FLAC")
    source = made(channels="2", multichannel=multichannel)
    samples = await decode(source, buffer.getvalue())
    if multichannel == "true":
        assert samples.shape == (16_000, 2)
        assert samples[:, 1] == pytest.approx(RIGHT, abs=1e-3)
    else:
        assert samples.shape == (16_000, 1)


async def test_a_container_with_other_channels_is_refused() -> None:
    buffer = io.BytesIO()
    soundfile.write(buffer, LEFT, 16_000, format="FLAC")
    with pytest.raises(AudioError, match="channels"):
        await decode(made(channels="2", multichannel="true"), buffer.getvalue())


async def test_what_is_no_audio_is_refused_at_the_end_at_the_latest() -> None:
    with pytest.raises(AudioError):
        await decode(made(), b"this is not sound " * 1000)


async def test_leaving_early_ends_the_decoding_thread() -> None:
    others = set(threading.enumerate())
    async with made() as source:
        assert not [part async for part in source.decode(b"RIFF")]
        started = set(threading.enumerate()) - others
        # the others are the loop's own pool
        (thread,) = (each for each in started if not each.name.startswith("asyncio_"))
    assert not thread.is_alive()
