"""One decode in progress: what the scheduler and the runner know of a window, without tensors."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from engine.batching.draft import Draft
from engine.model.folded_tail import KeptPositions


class Phase(enum.Enum):
    """How far a sequence has come."""

    WAITING = "waiting"  # to be admitted, then encoded
    ENCODING = "encoding"  # has its pages; is encoded while others decode
    RUNNING = "running"  # has its pages; joins every step
    DONE = "done"  # finished or aborted; holds pages only while an encoder still writes to them


@dataclass(slots=True, eq=False)
class Sequence:
    """A window's place in the batch. Compared by identity."""

    # what was asked; does not change
    id: int  # ascending in order of arrival
    stream_id: int
    is_final: bool
    deadline: float  # time.monotonic(); an order, not a limit
    kept: KeptPositions
    # tokens before the first sampled one; the language is filled in when it is detected
    prefix: list[int]
    max_tokens: int  # sampled tokens at most
    sot_index: int  # in the prefix, of the start-of-transcript token
    needs_language: bool = False  # stop at the start of transcript until it is known
    word_times: bool = False  # keep what aligns words with the audio
    seed: int = 0  # of the noise at temperatures above 0

    # what the scheduler gives; empty while it holds none
    phase: Phase = Phase.WAITING
    self_pages: tuple[int, ...] = ()
    cross_pages: tuple[int, ...] = ()

    # what the runner changes
    tokens: list[int] = field(default_factory=list)  # sampled so far, end token excluded
    num_cached: int = 0  # positions with self-attention K/V in the pool
    draft: Draft | None = None  # guesses what comes next
    logprobs: list[float] = field(default_factory=list)  # of the tokens, and of the end token
    temperature: float = 0.0
    attempt: int = 0  # how many temperatures were tried before
    no_speech_probability: float = 0.0  # at the start of transcript
    language_probabilities: dict[str, float] | None = None  # set where needs_language
    is_ended: bool = False  # the model wrote its end token
    is_truncated: bool = False  # stopped by a limit instead
    num_steps: int = 0  # decoder steps it took part in
    num_drafted: int = 0  # tokens proposed
    num_accepted: int = 0  # of those, tokens that were sampled too
    num_failed_steps: int = 0  # that it took part in

    @property
    def num_positions(self) -> int:
        """Positions of self-attention that it may come to hold."""
        return len(self.prefix) + self.max_tokens

    @property
    def is_stopped(self) -> bool:
        return self.is_ended or self.is_truncated

    @property
    def avg_logprob(self) -> float:
        return sum(self.logprobs) / len(self.logprobs) if self.logprobs else 0.0

    def restart(self, temperature: float) -> None:
        """Forget the text, keep the encoded window: decode again at another temperature."""
        self.begin_again()
        self.temperature = temperature
        self.attempt += 1

    def begin_again(self) -> None:
        """Forget the text, keep the encoded window: decode again as if for the first time."""
        self.tokens = []
        self.logprobs = []
        self.num_cached = 0
        self.draft = None
        self.is_ended = False
        self.is_truncated = False
