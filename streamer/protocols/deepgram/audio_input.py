"""What a Deepgram client sends, as the bytes that a session takes.

A session takes samples of one format. Mono, and channels that stay apart, go through as they are.
Containers and Opus packets are decoded first, and channels that share one transcript are mixed;
these go on as 16 kHz float32.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from typing import Self

import numpy as np

from engine.api import SAMPLE_RATE, Samples
from streamer.audio.container import ContainerDecoder
from streamer.audio.mixer import Mixer
from streamer.audio.opus import OpusDecoder
from streamer.audio.pcm import AudioDecoder, AudioFormat
from streamer.protocols.deepgram.options import ListenOptions

PIECE_BYTES = 256 * 1024  # of samples that are mixed, converted at once


class DeepgramInput:
    """The audio of one connection; a context manager, since decoding may need a thread.

    Attributes:
        format: of what `decode` returns.
    """

    def __init__(self, options: ListenOptions) -> None:
        self._container: ContainerDecoder | None = None
        self._decoder: AudioDecoder | OpusDecoder | None = None
        self._mixer: Mixer | None = None
        raw, mixes = options.audio_format, options.mixes_channels and options.channels > 1
        channels = 1 if options.mixes_channels else options.channels
        if raw is not None and not mixes:
            self.format = raw
            return
        self.format = AudioFormat("pcm_f32le", SAMPLE_RATE, channels)
        if options.is_container:
            self._container = ContainerDecoder(channels=channels)
            return  # it mixes by itself
        self._decoder = AudioDecoder(raw) if raw is not None else OpusDecoder(options.channels)
        self._mixer = Mixer(options.channels, SAMPLE_RATE) if mixes else None

    async def __aenter__(self) -> Self:
        if self._container is not None:
            self._container.__enter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._container is not None:
            self._container.close()
            await asyncio.to_thread(self._container.join)

    async def decode(self, data: bytes) -> AsyncGenerator[bytes, None]:
        """Convert a message, in a thread and some seconds at a time; the incomplete comes later.

        Raises:
            AudioError, ValueError: the bytes are not the audio they should be.
        """
        if self._container is None and self._decoder is None:
            yield data
            return
        blocks = self._decode(data)
        while (block := await asyncio.to_thread(next, blocks, None)) is not None:
            yield block

    async def flush(self) -> AsyncGenerator[bytes, None]:
        """Yield what is left inside, at the end of the stream."""
        blocks = self._flush()
        while (block := await asyncio.to_thread(next, blocks, None)) is not None:
            yield block

    def _decode(self, data: bytes) -> Iterator[bytes]:
        if self._container is not None:
            yield from map(self._convert, self._container.feed(data))
        elif isinstance(self._decoder, OpusDecoder):
            yield self._convert(self._decoder.decode(data))  # one packet, which cannot be cut
        else:
            assert self._decoder is not None
            for first in range(0, len(data), PIECE_BYTES):
                yield self._convert(self._decoder.decode(data[first : first + PIECE_BYTES]))

    def _flush(self) -> Iterator[bytes]:
        if self._container is not None:
            yield from map(self._convert, self._container.flush())
        elif self._decoder is not None:
            yield self._convert(self._decoder.flush())
            if self._mixer is not None:
                yield self._mixer.flush().tobytes()

    def _convert(self, channels: list[Samples]) -> bytes:
        if not channels:
            return b""
        samples = np.stack(channels)  # (C, T)
        if self._mixer is not None:
            return self._mixer.mix(samples).tobytes()
        return np.ascontiguousarray(samples.T).tobytes()  # interleaved
