"""What a client of `/v1/stream` sends, as the bytes that a session takes.

Raw samples need nothing done. A container is decoded as it arrives, in a thread, to 16 kHz float32.
"""

from __future__ import annotations

import asyncio
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

    def __enter__(self) -> Self:
        if self._decoder is not None:
            self._decoder.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        if self._decoder is not None:
            self._decoder.__exit__()

    async def decode(self, data: bytes) -> bytes:
        """Convert a message; what is not complete yet comes with a later one.

        Raises:
            AudioError: this is not audio.
        """
        if self._decoder is None:
            return data
        return _interleave(await asyncio.to_thread(self._decoder.feed, data))

    async def flush(self) -> bytes:
        """Return what is left inside, at the end of the audio.

        Raises:
            AudioError: there was no audio at all.
        """
        if self._decoder is None:
            return b""
        return _interleave(await asyncio.to_thread(self._decoder.flush))


def _interleave(channels: list[Samples]) -> bytes:
    return np.ascontiguousarray(np.stack(channels).T).tobytes() if channels else b""
