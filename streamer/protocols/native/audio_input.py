"""What a client of `/v1/stream` sends, as the bytes that a session takes.

Raw samples need nothing done. A container is decoded as it arrives, in a thread, to 16 kHz float32.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Self

import numpy as np

from engine.api import SAMPLE_RATE, Samples
from streamer.audio.container import ContainerDecoder
from streamer.audio.pcm import AudioFormat

CONTAINER = "container"  # in place of an encoding: the bytes say themselves what they hold

REMEDY = 'start with encoding "container" to send a file, or with the encoding that is sent'


class AudioInput:
    """The audio of one session; a context manager.

    Attributes:
        format: of what the session gets.
        is_raw: the bytes are what the session takes; `decode` would return them as they are.
    """

    def __init__(self, encoding: str, sample_rate: int, channels: int) -> None:
        """Declare the audio.

        Raises:
            ValueError: it is not of a format that is served.
        """
        self._decoder: ContainerDecoder | None = None
        self.is_raw = encoding != CONTAINER
        if encoding == CONTAINER:
            self.format = AudioFormat("pcm_f32le", SAMPLE_RATE, channels)
            self._decoder = ContainerDecoder(channels=channels)
        else:
            self.format = AudioFormat(encoding, sample_rate, channels, REMEDY)

    async def __aenter__(self) -> Self:
        if self._decoder is not None:
            self._decoder.__enter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._decoder is not None:
            self._decoder.close()
            await asyncio.to_thread(self._decoder.join)

    async def decode(self, data: bytes) -> AsyncGenerator[bytes, None]:
        """Convert a message, some seconds at a time; what is not complete yet comes later.

        Raises:
            AudioError: this is not audio.
        """
        if self._decoder is None:
            yield data
            return
        blocks = self._decoder.feed(data)
        while (block := await asyncio.to_thread(next, blocks, None)) is not None:
            yield _interleave(block)

    async def flush(self) -> AsyncGenerator[bytes, None]:
        """Yield what is left inside, at the end of the audio.

        Raises:
            AudioError: there was no audio at all.
        """
        if self._decoder is None:
            return
        blocks = self._decoder.flush()
        while (block := await asyncio.to_thread(next, blocks, None)) is not None:
            yield _interleave(block)


def _interleave(channels: list[Samples]) -> bytes:
    return np.ascontiguousarray(np.stack(channels).T).tobytes()
