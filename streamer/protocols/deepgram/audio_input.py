"""What a Deepgram client sends, as the bytes that a session takes.

A session takes samples of one format. Mono, and channels that stay apart, go through as they are.
Containers and Opus packets are decoded first, and channels that share one transcript are mixed;
these go on as 16 kHz float32.
"""

from __future__ import annotations

from typing import Self

import numpy as np

from engine.api import SAMPLE_RATE, Samples
from streamer.audio.container import ContainerDecoder
from streamer.audio.mixer import Mixer
from streamer.audio.opus import OpusDecoder
from streamer.audio.pcm import AudioDecoder, AudioFormat
from streamer.protocols.deepgram.options import ListenOptions


class DeepgramInput:
    """The audio of one connection; a context manager, since decoding may need a thread.

    Attributes:
        format: of what `decode` returns.
        is_slow: decoding takes long enough that it should not hold up an event loop.
    """

    def __init__(self, options: ListenOptions) -> None:
        self._container: ContainerDecoder | None = None
        self._decoder: AudioDecoder | OpusDecoder | None = None
        self._mixer: Mixer | None = None
        raw, mixes = options.audio_format, options.mixes_channels and options.channels > 1
        self.is_slow = options.is_container
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

    def __enter__(self) -> Self:
        if self._container is not None:
            self._container.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        if self._container is not None:
            self._container.__exit__()

    def decode(self, data: bytes) -> bytes:
        """Convert a message; what is not complete yet comes with a later one.

        Raises:
            AudioError, ValueError: the bytes are not the audio they should be.
        """
        if self._container is not None:
            return self._convert(self._container.feed(data))
        return data if self._decoder is None else self._convert(self._decoder.decode(data))

    def flush(self) -> bytes:
        """Return what is left inside, at the end of the stream."""
        if self._container is not None:
            return self._convert(self._container.flush())
        if self._decoder is None:
            return b""
        rest = self._convert(self._decoder.flush())
        return rest if self._mixer is None else rest + self._mixer.flush().tobytes()

    def _convert(self, channels: list[Samples]) -> bytes:
        if not channels:
            return b""
        samples = np.stack(channels)  # (C, T)
        if self._mixer is not None:
            return self._mixer.mix(samples).tobytes()
        return np.ascontiguousarray(samples.T).tobytes()  # interleaved
