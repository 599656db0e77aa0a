"""A file as an asynchronous source of audio: decoded in a thread, as fast as it is asked for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Generator, Iterator

import numpy as np

from engine.api import SAMPLE_RATE, Samples
from streamer.audio.container import decode
from streamer.audio.error import AudioError
from streamer.audio.probe import RawFormat, Source

BLOCK = 10 * SAMPLE_RATE  # samples a turn in the thread: 30 ms of work, or less


class Recording:
    """The audio of one file, mixed to one channel, or one channel of it.

    Attributes:
        duration: samples decoded so far.
        num_channels: that can be had apart; known with the first block.
    """

    def __init__(
        self, file: Source, raw: RawFormat | None = None, *, channel: int | None = None
    ) -> None:
        """Take a file; the caller closes it, after the generator of `blocks`.

        Args:
            raw: the file has no container and is this.
            channel: of a file with two; None mixes them.
        """
        self.duration = 0
        self.num_channels = 1
        self._blocks = decode(file, raw=raw) if channel is None else self._pick(file, raw, channel)

    async def blocks(self) -> AsyncGenerator[Samples, None]:
        """Yield (T,) float32 in [-1, 1] at 16 kHz; once.

        Close the generator before the file, also where it was not read to its end.

        Raises:
            AudioError: there is no audio in the file.
        """
        try:
            while True:
                reading = asyncio.ensure_future(asyncio.to_thread(_read, self._blocks))
                try:
                    block = await asyncio.shield(reading)
                except asyncio.CancelledError:
                    # the thread reads the file, so nobody may close it yet
                    await asyncio.wait([reading])
                    raise
                if block is None:
                    return
                self.duration += len(block)
                yield block
        finally:
            self._blocks.close()

    def _pick(
        self, file: Source, raw: RawFormat | None, channel: int
    ) -> Generator[list[Samples], None, None]:
        with contextlib.closing(decode(file, channels=None, raw=raw)) as blocks:
            for block in blocks:
                self.num_channels = len(block)
                if channel >= len(block):
                    raise AudioError(f"expected {channel + 1} channels, got {len(block)}")
                yield [block[channel]]


def _read(blocks: Iterator[list[Samples]]) -> Samples | None:
    """Read BLOCK samples, fewer at the end; None behind it."""
    pieces: list[Samples] = []
    length = 0
    for (block,) in blocks:
        pieces.append(block)
        length += len(block)
        if length >= BLOCK:
            break
    return np.concatenate(pieces) if pieces else None
