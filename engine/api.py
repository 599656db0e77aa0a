"""The seam between the service and the model: open a stream, decode a window.

Needs numpy and nothing heavier, so that a streamer runs on a machine without torch. Behind the
seam an engine may be a thread, another process or another machine; the streamer does not notice.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

SAMPLE_RATE = 16_000  # Hz; every position and duration inside Wordwire counts these samples
MAX_WINDOW = 30 * SAMPLE_RATE  # Whisper was trained on 30 s (whisper/audio.py)

Samples = npt.NDArray[np.float32]  # (T,) in [-1, 1], 16 kHz, one channel


class EngineError(Exception):
    """An engine refuses or fails one request; a client may read the message."""


class InvalidRequest(EngineError):
    """The request cannot be served as it is: length, NaN, unknown language, prompt too long."""


class EngineBusy(EngineError):
    """No room now; try again later."""


class StreamLost(EngineError):
    """The engine lost this stream's state. Open another stream and decode the window again."""


class Task(enum.Enum):
    """What to write: the words as spoken, or their English translation."""

    TRANSCRIBE = "transcribe"
    TRANSLATE = "translate"


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """What stays the same for all windows of one stream."""

    # ISO 639-1 code as in the model's tokenizer, or None to detect and keep it for the stream
    language: str | None = None
    task: Task = Task.TRANSCRIBE
    # words and names to listen for; offered to the decoder in front of every window's prompt
    hotwords: tuple[str, ...] = ()
    # tried in turn while a final window fails the compression or log-probability test
    temperatures: tuple[float, ...] = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


@dataclass(frozen=True, slots=True)
class Window:
    """Audio for one decode."""

    start: int  # position of audio[0], in samples from the start of the stream
    audio: Samples  # the engine only reads it; 1 to MAX_WINDOW samples
    prompt: str = ""  # the text before the window; shortened from the left to fit
    is_final: bool = False  # goes before partials, may fall back to higher temperatures
    word_times: bool = False  # fill Segment.words
    # time.monotonic() by which the text is wanted; an order, not a limit
    deadline: float = math.inf

    @property
    def end(self) -> int:
        return self.start + len(self.audio)


@dataclass(frozen=True, slots=True)
class Word:
    """A word as written, with the space or punctuation that belongs to it.

    The texts of a segment's words joined are the segment's text.
    """

    text: str  # with its leading space, where the language writes one
    start: int  # samples from the start of the stream
    end: int
    probability: float  # mean of its tokens', 0 to 1


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of text between two timestamps of the model."""

    text: str  # with its leading space, where the language writes one
    start: int  # samples from the start of the stream
    end: int  # the window's end where the model left the segment open
    is_open: bool  # the model did not close it with a timestamp: the speech may go on
    words: tuple[Word, ...] = ()  # filled where word times were asked for
    tokens: tuple[int, ...] = field(default=(), repr=False)  # of the text, without timestamps


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """The text of exactly one Window. Segments and words are in order and inside the window."""

    start: int
    end: int
    segments: tuple[Segment, ...]
    language: str
    language_probability: float  # of the detection; 1.0 where the language was given
    avg_logprob: float = 0.0  # mean log-probability of the sampled tokens, end token included
    no_speech_probability: float = 0.0  # at the start-of-transcript position
    compression_ratio: float = 0.0  # of the text, by zlib: repetition compresses well
    temperature: float = 0.0  # that gave this text
    is_truncated: bool = False  # stopped at the token limit or by the repetition guard
    tokens: tuple[int, ...] = field(default=(), repr=False)  # as sampled, timestamps included

    @property
    def text(self) -> str:
        return "".join(segment.text for segment in self.segments)


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What a service reports to its clients about the model."""

    name: str  # as given to --model
    languages: tuple[str, ...]  # ISO 639-1 codes; ("en",) for an English-only model
    device: str  # "cpu", "cuda"
    dtype: str  # of the weights as computed with, "float32", "bfloat16" ...


class Stream(Protocol):
    """One speaker's state in an engine; nothing in it that cannot be lost."""

    async def decode(self, window: Window) -> Hypothesis:
        """Decode a window. At most one call at a time; cancelling it aborts the decode.

        Raises:
            InvalidRequest: the window is empty, too long, or not finite.
            EngineBusy: no room for it now.
            StreamLost: the engine restarted; open another stream.
        """
        ...


class Engine(Protocol):
    """A model that decodes many streams at once."""

    @property
    def info(self) -> ModelInfo: ...

    def stream(self, options: StreamOptions) -> AbstractAsyncContextManager[Stream]:
        """Open a stream; leaving the context frees all that it holds.

        Raises:
            InvalidRequest: the model does not know the language, or cannot translate.
            EngineBusy: the engine serves as many streams as it can.
        """
        ...


@runtime_checkable
class Measured(Protocol):
    """An engine that counts what it does; this is optional."""

    def statistics(self) -> Mapping[str, float]:
        """Return numbers by name, for metrics; those that only grow end in `_total`."""
        ...


@runtime_checkable
class Watched(Protocol):
    """An engine that may be away for a while, because its process restarts."""

    @property
    def is_up(self) -> bool: ...

    @property
    def num_restarts(self) -> int: ...
