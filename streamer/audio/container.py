"""Containers and codecs to samples: WAV, FLAC, Ogg, WebM, MP3, M4A and what else FFmpeg reads.

`decode` pulls from a file; a `ContainerDecoder` is fed from a socket. Both give float32 blocks at
16 kHz as soon as the bytes at hand hold them, keep no more than a block in memory, and give what
can be had of a file that is cut or damaged.

Channels. One asked for: all channels of the source are mixed (see `Mixer`). Two or more asked for:
the source must have exactly that many, and they stay apart. None: two channels stay apart, any
other number is mixed into one.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from typing import Self

import av
import numpy as np
import soxr

from engine.api import SAMPLE_RATE, Samples
from streamer.audio.error import AudioError
from streamer.audio.ffmpeg import read_frames, to_float
from streamer.audio.mixer import Mixer
from streamer.audio.probe import FrontReader, RawFormat, SeekableSource, Source
from streamer.audio.raw_check import HEAD_BYTES, container_name
from streamer.audio.wav import may_be_wav

NUM_HEAD_BYTES = 64  # a WAV header's own fields end at byte 44
MAX_HELD = 10 * SAMPLE_RATE  # of a channel, decoded ahead of whoever takes it
MAX_UNINDEXED = 256 << 20  # bytes kept of a streamed MP4 until the index at its end comes


def decode(
    source: Source, *, channels: int | None = 1, raw: RawFormat | None = None
) -> Generator[list[Samples], None, None]:
    """Decode audio block by block.

    Args:
        source: a file open for reading bytes; where it can also `seek`, indexes at the end are
            read in place. The caller closes it, after the iterator is done or closed.
        channels: how many arrays to give; see the module's text.
        raw: the bytes are this, unless they begin as a container does.

    Yields:
        One (T,) array per channel, float32 in [-1, 1], 16 kHz, of equal lengths.

    Raises:
        AudioError: no audio could be had at all, or not with so many channels. Damage after the
            first sample ends the iteration, or is skipped where the decoder finds its way back.
    """
    with ExitStack() as stack:
        if isinstance(source, SeekableSource):
            head = source.read(NUM_HEAD_BYTES)
            source.seek(0)
            raw = _check_raw(raw, head)
        else:
            front = FrontReader(source)
            head = front.peek(NUM_HEAD_BYTES)
            raw = _check_raw(raw, head)
            if raw is None:
                raw = front.take_wav_header()
            source = _spool(front, stack) if front.has_index_last() else front
        shaper: _Shaper | None = None
        for frame in read_frames(source, raw, head):
            if shaper is None:
                shaper = _Shaper(frame, channels)
                channels = shaper.num_arrays
            elif not shaper.fits(frame):  # a chained stream goes on at another rate or layout
                yield shaper.flush()
                if channels not in (1, frame.layout.nb_channels):
                    return
                shaper = _Shaper(frame, channels)
            yield shaper.shape(frame)
        if shaper is not None:
            yield shaper.flush()


def _check_raw(raw: RawFormat | None, head: bytes) -> RawFormat | None:
    """Return the format of a file without a container; None where its first bytes name one."""
    if raw is None or may_be_wav(head) or container_name(head[:HEAD_BYTES]) is not None:
        return None
    return raw


class ContainerDecoder:
    """Decodes a container that arrives in pieces, cut anywhere.

    FFmpeg wants to read, a socket wants to hand over: a thread reads from what was fed, and `feed`
    waits until it has used it up. So nothing queues, and any cutting gives the same samples. A
    few bytes may hold hours of silence, so the thread waits while MAX_HELD samples are not taken.
    A context manager: leaving it ends the thread.

    Audio comes out as bytes come in, save that FFmpeg looks at about 10 kB of MP3 and ADTS before
    it is sure of them, and stays ten frames (a second) behind in FLAC. An MP4 with its index at
    the end gives all of its audio at `flush`.
    """

    def __init__(self, *, channels: int | None = 1, raw: RawFormat | None = None) -> None:
        self._changed = threading.Condition()
        self._pipe = _Pipe(self._changed)
        # decoded, not yet handed out; MAX_HELD and one frame at most
        self._blocks: list[list[Samples]] = []
        self._num_held = 0  # samples of each channel in these
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, args=(channels, raw), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self.join()

    def close(self) -> None:
        """Ask the thread to end; what it holds is lost."""
        with self._changed:
            self._pipe.close()

    def join(self) -> None:
        """Wait for the thread, which ends with the frame that it is decoding."""
        self._thread.join()

    def feed(self, data: bytes) -> Iterator[list[Samples]]:
        """Decode what this piece completes; takes as long as decoding it takes.

        Yields:
            One (T,) array per channel, float32, 16 kHz, some MAX_HELD samples each at most; nothing
            before the first audio.

        Raises:
            AudioError: as `decode`.
        """
        with self._changed:
            self._pipe.write(data)
        return self._take()

    def flush(self) -> Iterator[list[Samples]]:
        """Decode the rest: no more data will come."""
        with self._changed:
            self._pipe.end()
        return self._take()

    def _take(self) -> Iterator[list[Samples]]:
        """Hand out blocks until all data is used up."""
        is_used_up, has_any = False, False
        while not is_used_up:
            with self._changed:
                self._changed.wait_for(lambda: self._pipe.is_idle or self._num_held >= MAX_HELD)
                is_used_up = self._pipe.is_idle
                blocks, self._blocks, self._num_held = self._blocks, [], 0
                self._changed.notify_all()
            if blocks:
                has_any = True
                yield [np.concatenate(rows) for rows in zip(*blocks, strict=True)]
        if self._error is not None and not has_any:
            raise self._error

    def _run(self, channels: int | None, raw: RawFormat | None) -> None:
        try:
            with contextlib.closing(decode(self._pipe, channels=channels, raw=raw)) as blocks:
                for block in blocks:
                    if not self._put(block):
                        return
        except Exception as error:  # handed to whoever feeds
            self._error = error
        finally:
            with self._changed:
                self._pipe.stop_reading()

    def _put(self, block: list[Samples]) -> bool:
        """Hold a block until it is taken; return False where nobody will take it."""
        with self._changed:
            self._blocks.append(block)
            self._num_held += len(block[0])
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._num_held < MAX_HELD or self._pipe.is_closed)
            return not self._pipe.is_closed


class _Pipe:
    """Hands bytes from one thread to another that reads.

    All but `read` is called with the condition held.
    """

    def __init__(self, changed: threading.Condition) -> None:
        self._changed = changed
        self._data = memoryview(b"")
        self._is_ended = False  # no more data comes
        self._is_waiting = False  # the reader has used all it was given
        self._is_stopped = False  # the reader wants no more
        self.is_closed = False  # nobody wants what is read

    @property
    def is_idle(self) -> bool:
        """All data is used up, or never will be."""
        return self._is_waiting or self._is_stopped

    def read(self, size: int, /) -> bytes:
        with self._changed:
            while not self._data and not self._is_ended:
                self._is_waiting = True
                self._changed.notify_all()
                self._changed.wait()
            self._is_waiting = False
            data, self._data = bytes(self._data[:size]), self._data[size:]
            return data

    def write(self, data: bytes) -> None:
        if data and not self._is_stopped:
            self._data = memoryview(bytes(self._data) + data)
            self._is_waiting = False
            self._changed.notify_all()

    def end(self) -> None:
        self._is_ended = True
        self._is_waiting = False
        self._changed.notify_all()

    def close(self) -> None:
        self._data = memoryview(b"")
        self.is_closed = True
        self.end()

    def stop_reading(self) -> None:
        self._is_stopped = True
        self._changed.notify_all()


def _spool(source: Source, stack: ExitStack) -> Source:
    """Put a stream aside whole, so that it can be read in any order."""
    file = stack.enter_context(tempfile.TemporaryFile())
    while data := source.read(1 << 16):
        if file.tell() > MAX_UNINDEXED:
            raise AudioError(
                "expected an MP4 that can be played as it arrives (fragmented, or with its index "
                f"in front), found no index in {MAX_UNINDEXED >> 20} MiB"
            )
        file.write(data)
    file.seek(0)
    return file


class _Shaper:
    """Turns frames of one rate and layout into what was asked for."""

    def __init__(self, frame: av.AudioFrame, channels: int | None) -> None:
        self._rate = frame.sample_rate
        self._source_channels = frame.layout.nb_channels
        if channels is None:
            channels = 2 if self._source_channels == 2 else 1
        if channels != 1 and channels != self._source_channels:
            raise AudioError(f"expected {channels} channels, got {self._source_channels}")
        self.num_arrays = channels
        self._mixer = Mixer(self._source_channels, self._rate) if channels == 1 else None
        self._resamplers = [
            soxr.ResampleStream(self._rate, SAMPLE_RATE, 1, dtype="float32")
            for _ in range(channels if self._rate != SAMPLE_RATE else 0)
        ]

    def fits(self, frame: av.AudioFrame) -> bool:
        return bool(
            frame.sample_rate == self._rate and frame.layout.nb_channels == self._source_channels
        )

    def shape(self, frame: av.AudioFrame) -> list[Samples]:
        samples = to_float(frame)
        if self._mixer is not None:
            samples = self._mixer.mix(samples)[None, :]
        return self._resample(samples, is_last=False)

    def flush(self) -> list[Samples]:
        samples = np.zeros((self.num_arrays, 0), np.float32)
        if self._mixer is not None:
            samples = self._mixer.flush()[None, :]
        return self._resample(samples, is_last=True)

    def _resample(self, samples: Samples, *, is_last: bool) -> list[Samples]:
        if not self._resamplers:
            return list(samples)
        # resampling overshoots at edges, by up to a tenth of full scale
        return [
            np.clip(resampler.resample_chunk(np.ascontiguousarray(row), last=is_last), -1.0, 1.0)
            for row, resampler in zip(samples, self._resamplers, strict=True)
        ]
