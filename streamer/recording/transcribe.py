"""Transcribe a whole recording: windows are decoded side by side, results come out in order.

The audio may be of any length: blocks are asked for only as fast as windows are decoded.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Sequence

from engine.api import (
    Engine,
    Hypothesis,
    Samples,
    Segment,
    StreamLost,
    StreamOptions,
    Window,
    Word,
)
from streamer.recording.chunk import Chunk, Chunker
from streamer.session.engine_retry import may_retry
from streamer.transcription.alignment import num_covered
from streamer.transcription.hallucination import MIN_REST_LENGTH, filter_hypothesis, reject_reason
from streamer.transcription.language_vote import MIN_LANGUAGE_PROBABILITY
from streamer.transcription.settings import SessionSettings
from streamer.transcription.word import words_in


async def transcribe(
    engine: Engine,
    blocks: AsyncIterable[Samples],
    settings: SessionSettings,
    *,
    num_streams: int | Callable[[], int] = 4,
) -> AsyncGenerator[Hypothesis, None]:
    """Yield the text of a recording, window by window, in the order of time.

    Windows without speech are not there, and one whose text is doubted has no segments. If the
    language is to be detected, the first window in which that succeeds decides for all that follow.

    Args:
        engine: decodes the windows.
        blocks: (T,) float32 in [-1, 1], 16 kHz, one channel; of any length.
        settings: language, task, prompt, word_times and detection are used.
        num_streams: windows decoded at once, or a function to ask for it; no more than these and
            30 s of audio are in memory.

    Raises:
        EngineError: the engine refused a window.
    """
    job = _Job(engine, settings)
    pending: deque[asyncio.Task[Hypothesis]] = deque()
    try:
        async for chunk in _chunks(blocks, settings):
            # until the language is known, windows go one by one
            most = num_streams() if callable(num_streams) else num_streams
            while len(pending) >= (most if job.language else 1):
                yield job.accept(await pending.popleft())
            job.chunks.append(chunk)
            pending.append(asyncio.create_task(job.decode(chunk)))
        while pending:
            yield job.accept(await pending.popleft())
    finally:
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)


async def _chunks(
    blocks: AsyncIterable[Samples], settings: SessionSettings
) -> AsyncIterator[Chunk]:
    chunker = Chunker(settings)
    async for block in blocks:
        for chunk in await asyncio.to_thread(chunker.receive, block):
            yield chunk
    for chunk in chunker.end():
        yield chunk


class _Job:
    """What the windows of one recording share."""

    def __init__(self, engine: Engine, settings: SessionSettings) -> None:
        self._engine = engine
        self._settings = settings
        self.language = settings.language  # None until it is detected
        self.chunks: deque[Chunk] = deque()  # decoded or being so, and not accepted yet
        self._words: list[Word] = []  # of the chunk before

    async def decode(self, chunk: Chunk) -> Hypothesis:
        options = dataclasses.replace(self._settings.stream_options, language=self.language)
        hypothesis = await self._decode_from(chunk, chunk.start, options)
        start = chunk.start
        while (rest := _left_over(hypothesis, start)) is not None:
            start = rest
            further = await self._decode_from(chunk, start, options)
            if reject_reason(further) is not None:
                break
            hypothesis = _join(hypothesis, further)
        return hypothesis

    async def _decode_from(self, chunk: Chunk, start: int, options: StreamOptions) -> Hypothesis:
        window = Window(
            start=start,
            audio=chunk.audio[start - chunk.start :],
            prompt=self._settings.prompt,
            is_final=True,
            # at a cut, the words tell what both windows have
            word_times=self._settings.word_times or chunk.cut is not None or chunk.follows_cut,
        )
        num_lost = 0
        while True:
            try:
                return await _decode(self._engine, options, window)
            except StreamLost:
                num_lost += 1
                if not await may_retry(num_lost):
                    raise

    def accept(self, hypothesis: Hypothesis) -> Hypothesis:
        """Take the next result in order: leave out what is rejected or repeated."""
        chunk = self.chunks.popleft()
        found = filter_hypothesis(hypothesis)
        if found.reason is not None:
            self._words = []
            return dataclasses.replace(hypothesis, segments=())
        if self.language is None and hypothesis.language_probability >= MIN_LANGUAGE_PROBABILITY:
            self.language = hypothesis.language
        words = found.words
        first, last = 0, len(words)
        if chunk.follows_cut:
            known = [word for word in self._words if word.start + word.end > 2 * chunk.start]
            first = num_covered(known, words)
        if chunk.cut is not None:
            last = min(last, sum(word.start + word.end < 2 * chunk.cut for word in words))
        self._words = words[first:last]
        return dataclasses.replace(hypothesis, segments=_trim(hypothesis.segments, first, last))


def _left_over(hypothesis: Hypothesis, start: int) -> int | None:
    """Return where the audio begins that the model left out, or None.

    It may stop at a timestamp though people speak on, or run out of room for words.

    Args:
        hypothesis: of a chunk, up to its end.
        start: of the chunk's newest window.
    """
    found = filter_hypothesis(hypothesis)
    if not found.words or found.has_loop:
        return None
    last = found.words[-1].end if hypothesis.is_truncated else hypothesis.segments[-1].end
    is_worth_it = hypothesis.end - last >= MIN_REST_LENGTH and last - start >= MIN_REST_LENGTH
    return last if is_worth_it else None


def _join(hypothesis: Hypothesis, further: Hypothesis) -> Hypothesis:
    """Add the text of a further window to that of a chunk; keep the worse of the signals."""
    return dataclasses.replace(
        hypothesis,
        segments=hypothesis.segments + further.segments,
        avg_logprob=min(hypothesis.avg_logprob, further.avg_logprob),
        no_speech_probability=min(hypothesis.no_speech_probability, further.no_speech_probability),
        compression_ratio=max(hypothesis.compression_ratio, further.compression_ratio),
        temperature=max(hypothesis.temperature, further.temperature),
        is_truncated=further.is_truncated,
        tokens=hypothesis.tokens + further.tokens,
    )


async def _decode(engine: Engine, options: StreamOptions, window: Window) -> Hypothesis:
    async with engine.stream(options) as stream:
        return await stream.decode(window)


def _trim(segments: Sequence[Segment], first: int, last: int) -> tuple[Segment, ...]:
    """Keep the words from `first` to `last`, counted over all segments."""
    kept = []
    position = 0
    for segment in segments:
        words = words_in(segment)
        chosen = words[max(0, first - position) : max(0, last - position)]
        position += len(words)
        if len(chosen) == len(words):
            kept.append(segment)
        elif chosen:
            kept.append(
                dataclasses.replace(
                    segment,
                    text="".join(word.text for word in chosen),
                    start=chosen[0].start,
                    end=chosen[-1].end,
                    words=tuple(chosen) if segment.words else (),
                )
            )
    return tuple(kept)
