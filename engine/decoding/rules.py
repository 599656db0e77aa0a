"""What may be sampled next: Whisper's own decoding rules, for a batch at once.

Suppressed tokens and the timestamp grammar, exactly as transformers' SuppressTokens processors and
WhisperTimeStampLogitsProcessor (which follow whisper/decoding.py). What the rules need to know of
a sequence is four numbers, kept as tensors: shapes are fixed and nothing is read back to the host,
so the same code runs for a decode step, inside a CUDA graph, and for all positions of a draft.

N rows are sequences in a decode step, or positions of one draft. V is the vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.checkpoint.model_config import ModelConfig
from engine.decoding.tokenizer import Tokenizer

ARGMAX_BLOCK = 256  # tokens compared at once in the search for the most probable one
MAX_INITIAL_TIMESTAMP = 50  # steps of 0.02 s: speech starts within 1 s (whisper/decoding.py)


@dataclass(frozen=True, slots=True)
class RuleState:
    """What the rules know of each row: the tokens sampled so far, as far as they matter."""

    is_first: Tensor  # (N,) bool: nothing is sampled yet
    last_is_time: Tensor  # (N,) bool: the last token is a timestamp
    previous_is_time: Tensor  # (N,) bool: the one before it is, or there is none
    last_time: Tensor  # (N,) int64: the last timestamp token; timestamp_begin - 1 before the first

    def take(self, rows: Tensor) -> RuleState:
        """Return the state of some rows, (M,) int64, in their order."""
        return RuleState(
            self.is_first[rows],
            self.last_is_time[rows],
            self.previous_is_time[rows],
            self.last_time[rows],
        )


@dataclass(frozen=True, slots=True)
class SampledToken:
    """A token for each row."""

    tokens: Tensor  # (N,) int64
    logprobs: Tensor  # (N,) float32: among the tokens that the rules allow, at temperature 1


@dataclass(frozen=True, slots=True)
class Highest:
    """The highest value of each row."""

    values: Tensor  # (N,)
    indices: Tensor  # (N,) int64


@dataclass(frozen=True, slots=True)
class _Constraint:
    """Which of the three ranges of tokens each row may use."""

    text: Tensor  # (N,) bool: tokens below eot
    special: Tensor  # (N,) bool: from eot to the first timestamp
    times: Tensor  # (N, V - timestamp_begin) float32: logits, -inf where forbidden


class Rules:
    """The rules of one model, on one device. Holds no state of any sequence."""

    def __init__(
        self,
        vocab_size: int,
        eot: int,
        timestamp_begin: int,
        suppress: Sequence[int] = (),
        begin_suppress: Sequence[int] = (),
        with_timestamps: bool = True,
        device: torch.device | str = "cpu",
    ) -> None:
        """Lay out the rules; `build_rules` does it from a model.

        Args:
            timestamp_begin: the token of 0.00 s; the one below it is <|notimestamps|>.
            suppress: never sampled.
            begin_suppress: never sampled first.
            with_timestamps: False leaves out the timestamp grammar, for sequences that start with
                <|notimestamps|>.
        """
        self.eot = eot
        self.timestamp_begin = timestamp_begin
        self.with_timestamps = with_timestamps
        never = torch.zeros(vocab_size)
        never[list(suppress)] = -torch.inf
        if with_timestamps:
            never[timestamp_begin - 1] = -torch.inf
        first = never.clone()
        first[list(begin_suppress)] = -torch.inf
        # (V,) float32, 0 or -inf, to be added to logits
        self._never, self._first = never.to(device), first.to(device)
        self._times = torch.arange(timestamp_begin, vocab_size, device=device)

    @property
    def never(self) -> Tensor:
        """What is added to every row's logits: (V,) float32, 0 or -inf."""
        return self._never

    def start(self, num_rows: int) -> RuleState:
        """Return the state of rows that have sampled nothing yet."""
        no = torch.zeros(num_rows, dtype=torch.bool, device=self._times.device)
        return RuleState(
            is_first=~no,
            last_is_time=no,
            previous_is_time=~no,
            last_time=self._times.new_full((num_rows,), self.timestamp_begin - 1),
        )

    def advance(self, state: RuleState, tokens: Tensor) -> RuleState:
        """Return the state after each row has sampled its token, (N,) int64."""
        is_time = tokens >= self.timestamp_begin
        return RuleState(
            is_first=torch.zeros_like(state.is_first),
            last_is_time=is_time,
            previous_is_time=state.last_is_time | state.is_first,
            last_time=torch.where(is_time, tokens, state.last_time),
        )

    def follow(self, state: RuleState, tokens: Tensor) -> RuleState:
        """Return the states along a draft, as if its tokens were sampled one by one.

        Args:
            state: of one row, before the draft.
            tokens: (T,) int64.

        Returns:
            T + 1 rows: before each token, and after the last.
        """
        T = len(tokens)
        is_time = tokens >= self.timestamp_begin
        last_is_time = torch.cat([state.last_is_time, is_time])
        is_first = torch.zeros_like(last_is_time)
        is_first[:1] = state.is_first
        # the place of the last timestamp before each position; 0 is the one before the draft
        places = torch.arange(1, T + 1, device=tokens.device) * is_time
        places = torch.cat([places.new_zeros(1), places]).cummax(dim=0).values
        return RuleState(
            is_first=is_first,
            last_is_time=last_is_time,
            previous_is_time=torch.cat([state.previous_is_time, last_is_time[:-1] | is_first[:-1]]),
            last_time=torch.cat([state.last_time, tokens])[places],
        )

    def mask(self, logits: Tensor, state: RuleState) -> Tensor:
        """Return a copy of the logits with -inf where the rules forbid a token.

        Args:
            logits: (N, V) of any float type.

        Returns:
            (N, V) float32.
        """
        masked = logits.float() + self._forbidden(state)
        if self.with_timestamps:
            text, special = masked[:, : self.eot], masked[:, self.eot : self.timestamp_begin]
            constraint = self._constrain(masked, text.amax(dim=1), special.amax(dim=1), state)
            text.masked_fill_(~constraint.text[:, None], -torch.inf)
            special.masked_fill_(~constraint.special[:, None], -torch.inf)
            masked[:, self.timestamp_begin :] = constraint.times
        return masked

    def sample_greedy(self, logits: Tensor, state: RuleState) -> SampledToken:
        """Sample greedily: the most probable token that the rules allow, the argmax of `mask`.

        Overwrites logits that are float32: a copy of 8 MB for a draft of 40 tokens costs more than
        the search.
        """
        masked = logits.float().add_(self._forbidden(state))
        if not self.with_timestamps:
            tokens = find_highest(masked).indices
            return SampledToken(tokens, gather_columns(masked.log_softmax(dim=1), tokens))
        text, special = masked[:, : self.eot], masked[:, self.eot : self.timestamp_begin]
        best_text = find_highest(text)
        constraint = self._constrain(masked, best_text.values, special.amax(dim=1), state)
        special.masked_fill_(~constraint.special[:, None], -torch.inf)
        masked[:, self.timestamp_begin :] = constraint.times
        rest = masked[:, self.eot :]
        best_rest = find_highest(rest)
        is_text = constraint.text & (best_text.values >= best_rest.values)
        tokens = torch.where(is_text, best_text.indices, best_rest.indices + self.eot)
        # where text is forbidden, it has no part in the probabilities
        logprobs = torch.where(
            constraint.text,
            gather_columns(masked.log_softmax(dim=1), tokens),
            gather_columns(rest.log_softmax(dim=1), (tokens - self.eot).clamp(min=0)),
        )
        return SampledToken(tokens, logprobs)

    def _forbidden(self, state: RuleState) -> Tensor:
        """Return what to add to the logits, (V,) or (N, V): 0 or -inf."""
        if self.with_timestamps:
            return self._never  # the first token is a timestamp anyway
        return torch.where(state.is_first[:, None], self._first, self._never)

    def _constrain(
        self, masked: Tensor, highest_text: Tensor, highest_special: Tensor, state: RuleState
    ) -> _Constraint:
        closes = state.last_is_time & state.previous_is_time  # two in a row: text must follow
        opens = state.last_is_time & ~state.previous_is_time  # one: another, or the end
        # time does not run backwards; only a pair may repeat its timestamp
        earliest = state.last_time + (~opens).long()
        late = self._times > self.timestamp_begin + MAX_INITIAL_TIMESTAMP
        times = masked[:, self.timestamp_begin :].masked_fill(
            (self._times < earliest[:, None]) | closes[:, None] | (state.is_first[:, None] & late),
            -torch.inf,
        )
        text, special = ~opens & ~state.is_first, ~state.is_first
        # a timestamp is due when all of them together are more probable than any other token
        highest = torch.maximum(
            highest_text.masked_fill(~text, -torch.inf),
            highest_special.masked_fill(~special, -torch.inf),
        )
        is_due = times.logsumexp(dim=1) > highest
        return _Constraint(text & ~is_due, special & ~is_due, times)


def build_rules(
    config: ModelConfig,
    tokenizer: Tokenizer,
    with_timestamps: bool = True,
    device: torch.device | str = "cpu",
) -> Rules:
    """Lay out the rules of a model."""
    return Rules(
        vocab_size=config.vocab_size,
        eot=tokenizer.eot,
        timestamp_begin=tokenizer.timestamp_begin,
        suppress=config.suppress_tokens,
        begin_suppress=config.begin_suppress_tokens,
        with_timestamps=with_timestamps,
        device=device,
    )


def gather_columns(x: Tensor, columns: Tensor) -> Tensor:
    """Gather one value from each row of (N, V): (N,)."""
    return x.gather(1, columns[:, None])[:, 0]


def find_highest(x: Tensor) -> Highest:
    """Find the highest value of each row and the first place where it stands, (N, V).

    On a CPU, a maximum without its place is ten times as fast as one with it: so the blocks'
    maxima first, then the place in one block.
    """
    V = x.shape[1]
    if x.is_cuda or V <= 2 * ARGMAX_BLOCK:
        best = x.max(dim=1)
        return Highest(best.values, best.indices)
    blocks = x[:, : V - V % ARGMAX_BLOCK].view(len(x), -1, ARGMAX_BLOCK)
    # the last block ends with the row and overlaps the one before it
    peaks = torch.cat(
        [blocks.amax(dim=2), x[:, V - ARGMAX_BLOCK :].amax(dim=1, keepdim=True)], dim=1
    )
    starts = (peaks.argmax(dim=1) * ARGMAX_BLOCK).clamp(max=V - ARGMAX_BLOCK)
    places = starts[:, None] + torch.arange(ARGMAX_BLOCK, device=x.device)
    best = x.gather(1, places).max(dim=1)
    return Highest(best.values, starts + best.indices)


def sample(
    masked: Tensor, temperature: Tensor, generator: torch.Generator | None = None
) -> SampledToken:
    """Sample a token for each row, with its own temperature; 0 takes the most probable.

    Args:
        masked: (N, V) float32, from `Rules.mask`.
        temperature: (N,) float32, 0 or more.
    """
    # adding Gumbel noise and taking the highest draws from the softmax (the Gumbel-max trick)
    uniform = torch.rand(masked.shape, device=masked.device, generator=generator)
    gumbel = -(-uniform.clamp(min=1e-20, max=1 - 2**-24).log()).log()
    tokens = (masked + temperature[:, None] * gumbel).argmax(dim=1)
    return SampledToken(tokens, gather_columns(masked, tokens) - masked.logsumexp(dim=1))


def no_speech_probability(logits: Tensor, no_speech: int) -> Tensor:
    """Return the probability that there is no speech, (N,) float32.

    Args:
        logits: (N, V), unmasked, at the position of <|startoftranscript|>.
        no_speech: `Tokenizer.no_speech`.
    """
    logits = logits.float()
    return (logits[:, no_speech] - logits.logsumexp(dim=1)).exp()


def language_probabilities(logits: Tensor, languages: Tensor) -> Tensor:
    """Return the probability of each language among those of the model, (N, L) float32.

    Args:
        logits: (N, V), unmasked, at the position of <|startoftranscript|>.
        languages: (L,) int64 tokens.
    """
    return logits[:, languages].float().softmax(dim=1)
