"""What a window and its stream are inside the engine, and whether they can be decoded at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from engine.api import (
    MAX_WINDOW,
    SAMPLE_RATE,
    EngineError,
    Hypothesis,
    InvalidRequest,
    StreamOptions,
    Task,
    Window,
)
from engine.batching.sequence import Sequence
from engine.decoding.language import DetectedLanguage, StreamLanguage
from engine.decoding.prompt import PromptWriter
from engine.decoding.tokenizer import TIMESTAMP_STEP, Tokenizer

MAX_TOKENS = 224  # sampled for one window at most (whisper/decoding.py)
# of a window, and for each second of its audio: Hindi takes the most tokens of the languages of our
# recordings, 14 a second; the others are for timestamps
MIN_TOKENS, MAX_TOKENS_PER_S = 40, 25

Result = Hypothesis | EngineError


@dataclass(slots=True)
class LastHypothesis:
    """The last hypothesis of a stream, as a draft of the next."""

    start: int  # of its window, in samples
    tokens: tuple[int, ...]


@dataclass(slots=True, eq=False)
class StreamState:
    """What an engine remembers of a stream. Nothing in it that cannot be lost."""

    id: int
    options: StreamOptions
    language: StreamLanguage
    prompts: PromptWriter
    last_hypothesis: LastHypothesis | None = None


@dataclass(slots=True, eq=False)
class Request:
    """A window on its way through the engine."""

    stream: StreamState
    window: Window
    sequence: Sequence
    on_done: Callable[[Result], None]  # called once, by the engine's thread
    detected_language: DetectedLanguage | None = None  # the language it is decoded in
    # what earlier temperatures gave, for the case that none of them is good
    attempts: list[Hypothesis] = field(default_factory=list)


def check_window(window: Window) -> None:
    """Raise InvalidRequest for a window that no model can decode."""
    audio = window.audio
    if not isinstance(audio, np.ndarray) or audio.dtype != np.float32 or audio.ndim != 1:
        found = f"{getattr(audio, 'dtype', type(audio).__name__)} {np.shape(audio)}"
        raise InvalidRequest(f"expected audio of shape (T,) float32, got {found}")
    if not 0 < len(audio) <= MAX_WINDOW:
        raise InvalidRequest(f"expected 1 to {MAX_WINDOW} samples of audio, got {len(audio)}")
    if not np.isfinite(audio).all():
        raise InvalidRequest("expected finite samples, got NaN or infinity")


def check_options(options: StreamOptions, tokenizer: Tokenizer) -> None:
    """Raise InvalidRequest for what the model does not know or cannot do."""
    known = tuple(tokenizer.languages) or ("en",)
    if options.language is not None and options.language not in known:
        raise InvalidRequest(
            f"expected one of the model's {len(known)} languages, got {options.language!r}"
            if len(known) > 1
            else f"expected language en, the only one of this model, got {options.language!r}"
        )
    if options.task is Task.TRANSLATE and tokenizer.translate is None:
        raise InvalidRequest("expected task transcribe: this model cannot translate")
    if not options.temperatures or any(not 0 <= t <= 2 for t in options.temperatures):
        raise InvalidRequest(
            f"expected one or more temperatures from 0 to 2, got {options.temperatures}"
        )


def limit_tokens(num_samples: int) -> int:
    """Limit the tokens sampled for a window in proportion to its audio.

    A loop in a short window is cut short, and the window needs fewer pages.
    """
    return min(MAX_TOKENS, MIN_TOKENS + MAX_TOKENS_PER_S * num_samples // SAMPLE_RATE)


def write_prefix(
    prompts: PromptWriter, prompt: str, task: Task, language: str | None, tokenizer: Tokenizer
) -> list[int]:
    """Write the tokens before the first sampled one: hotwords and prompt, language, task."""
    # any language takes the place of one not known yet
    code = language or next(iter(tokenizer.languages), None)
    return list(prompts.write(tokenizer.start_sequence(code, task), prompt))


def set_language(sequence: Sequence, language: str, tokenizer: Tokenizer) -> None:
    """Write the language that was detected into the prefix of a sequence that waits for it."""
    sequence.prefix[sequence.sot_index + 1] = tokenizer.languages[language]
    sequence.needs_language = False


def shift_in_steps(shift: int) -> int:
    """Turn samples into timestamp steps."""
    return round(shift / TIMESTAMP_STEP)
