"""Cut a recording into windows for decoding one beside the other.

A window holds as many stretches of speech as fit, since context helps the model; what the speech
detector takes for silence is left out at its ends and, where it is long, between its stretches. A
stretch too long for one window is cut at its quietest point, with some audio on both sides.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.api import SAMPLE_RATE, Samples
from streamer.transcription.boundary import quietest
from streamer.transcription.buffer import AudioBuffer
from streamer.transcription.segmenter import Closed, Opened, Segmenter
from streamer.transcription.settings import Endpointing, SessionSettings
from streamer.vad.detector import SpeechDetector

MAX_CHUNK_LENGTH = 28 * SAMPLE_RATE  # leaves room for what overlaps at a cut
MIN_CUT_LENGTH = 18 * SAMPLE_RATE  # a cut is looked for between this and MAX_CHUNK_LENGTH
MAX_GAP_LENGTH = 2 * SAMPLE_RATE  # a longer silence is not decoded
CUT_OVERLAP = SAMPLE_RATE  # audio that both windows at a cut have, on either side of it


@dataclass(frozen=True, slots=True)
class Chunk:
    """A window of a recording."""

    start: int  # samples from the start of the recording
    audio: Samples
    # the words from here on are the next chunk's; None where speech pauses at the end
    cut: int | None = None
    follows_cut: bool = False  # the first words may be the last ones of the chunk before


class Chunker:
    """Takes a recording in blocks of any size and returns its chunks; holds about 30 s of it."""

    def __init__(self, settings: SessionSettings) -> None:
        # any pause is a place to cut at, however long a pause ends a segment elsewhere
        settings = replace(settings, silence_ms=300, endpointing=Endpointing.SPEECH)
        self._detector = SpeechDetector(settings.vad_threshold)
        self._segmenter = Segmenter(settings)
        self._buffer = AudioBuffer()
        self._pre_roll = settings.pre_roll
        self._start: int | None = None  # of the chunk that is being collected
        self._end = 0  # of its last whole stretch
        self._open: int | None = None  # start of the stretch that goes on
        self._follows_cut = False

    @property
    def received(self) -> int:
        return self._buffer.end

    def receive(self, samples: Samples) -> list[Chunk]:
        """Take the next samples; return the chunks that they complete."""
        chunks: list[Chunk] = []
        # one second at a time, so that no more than a chunk is ever held
        for first in range(0, len(samples), SAMPLE_RATE):
            piece = samples[first : first + SAMPLE_RATE]
            self._buffer.append(piece)
            for is_speech in self._detector.detect(piece):
                for point in self._segmenter.accept(is_speech):
                    if isinstance(point, Opened):
                        chunks += self._begin(point.start)
                    elif isinstance(point, Closed):
                        chunks += self._finish(point.end)
            chunks += self._bound()
        return chunks

    def end(self) -> list[Chunk]:
        """Return the chunks of what is left."""
        chunks: list[Chunk] = []
        for point in self._segmenter.close(self._buffer.end):
            if isinstance(point, Closed):
                chunks += self._finish(point.end)
        if self._start is not None:
            chunks.append(self._emit(self._end))
        return chunks

    def _begin(self, start: int) -> list[Chunk]:
        chunks = []
        if self._start is not None and start - self._end > MAX_GAP_LENGTH:
            chunks.append(self._emit(self._end))
        if self._start is None:
            self._start = start
        self._open = start
        return chunks

    def _finish(self, end: int) -> list[Chunk]:
        chunks = self._bound(end)
        self._open, self._end = None, end
        return chunks

    def _bound(self, end: int | None = None) -> list[Chunk]:
        """Emit what must not wait for the open stretch, and keep the buffer short."""
        end = self._buffer.end if end is None else end
        chunks: list[Chunk] = []
        if self._start is None:
            self._buffer.drop_before(end - self._pre_roll - SAMPLE_RATE)
            return chunks
        if self._open is None:
            if end - self._end > MAX_GAP_LENGTH + SAMPLE_RATE:
                chunks.append(self._emit(self._end))
            return chunks
        if end - self._start > MAX_CHUNK_LENGTH and self._open > self._start:
            chunks.append(self._emit(self._end))
            self._start = self._open
        while end - self._start > MAX_CHUNK_LENGTH:
            cut = quietest(
                self._buffer,
                self._start + MIN_CUT_LENGTH,
                self._start + MAX_CHUNK_LENGTH - CUT_OVERLAP,
            )
            chunks.append(self._emit(cut + CUT_OVERLAP, cut))
            self._start = self._open = cut - CUT_OVERLAP
            self._follows_cut = True
        return chunks

    def _emit(self, end: int, cut: int | None = None) -> Chunk:
        assert self._start is not None
        chunk = Chunk(self._start, self._buffer.read(self._start, end), cut, self._follows_cut)
        self._start, self._follows_cut = None, False
        self._buffer.drop_before(end - 2 * CUT_OVERLAP if cut is not None else end)
        return chunk
