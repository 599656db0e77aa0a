"""The model input of a sequence for one decoder step, and which sampled tokens it accepts."""

from __future__ import annotations

from collections.abc import Sequence as Rows
from dataclasses import dataclass

from engine.batching.counters import Counters
from engine.batching.sequence import Sequence
from engine.decoding.repetition import find_loop
from engine.decoding.rules import Rules

LOOP_CHECK_INTERVAL = 8  # tokens between two searches for a loop


@dataclass(frozen=True, slots=True)
class StepInput:
    """What one sequence brings to a step."""

    sequence: Sequence
    position: int  # of tokens[0]
    tokens: list[int]  # read in this step; the last ones are the proposal
    proposal: list[int]
    # of tokens: from here on a token is sampled after each
    first_sampled: int
    # of tokens: the start of transcript, or None if it was read before
    sot: int | None


def make_step_input(sequence: Sequence) -> StepInput:
    """Lay out what a sequence reads next, and where tokens are sampled."""
    cached, prefix = sequence.num_cached, sequence.prefix
    sot = sequence.sot_index - cached if cached <= sequence.sot_index else None
    if sequence.needs_language:
        tokens = prefix[cached : sequence.sot_index + 1]
        return StepInput(sequence, cached, tokens, [], len(tokens), sot)
    known = prefix[cached:] + sequence.tokens[max(cached - len(prefix), 0) :]
    proposal: list[int] = []
    if sequence.draft is not None:
        # one more token than proposed is sampled
        limit = sequence.max_tokens - len(sequence.tokens) - 1
        proposal = sequence.draft.propose(limit)
    return StepInput(sequence, cached, known + proposal, proposal, len(known) - 1, sot)


def accept_sampled(
    sequence: Sequence,
    proposal: Rows[int],
    tokens: Rows[int],
    logprobs: Rows[float],
    rules: Rules,
    counters: Counters,
) -> None:
    """Append the tokens sampled, up to the first that differs from the proposal: verify a draft.

    Args:
        tokens: sampled before each proposed token, and one after the last.
    """
    sequence.num_drafted += len(proposal)
    counters.num_drafted += len(proposal)
    for place, (token, logprob) in enumerate(zip(tokens, logprobs, strict=True)):
        append_sampled(sequence, token, logprob, rules)
        counters.num_sampled += 1
        if sequence.is_stopped:
            break
        if place < len(proposal):
            if proposal[place] != sequence.tokens[-1]:
                break
            sequence.num_accepted += 1
            counters.num_accepted += 1
    # the last token is sampled but not read yet
    sequence.num_cached = (
        len(sequence.prefix) + len(sequence.tokens) - (0 if sequence.is_ended else 1)
    )


def append_sampled(sequence: Sequence, token: int, logprob: float, rules: Rules) -> None:
    """Add a token to a sequence's text, and stop it at an end, a limit or a loop."""
    sequence.logprobs.append(logprob)
    if token == rules.eot:
        sequence.is_ended = True
        return
    sequence.tokens.append(token)
    if sequence.draft is not None:
        sequence.draft.observe(token)
    count = len(sequence.tokens)
    if count % LOOP_CHECK_INTERVAL == 0:
        kept = find_loop(sequence.tokens, rules.timestamp_begin)
        if kept is not None:
            del sequence.tokens[kept:]
            sequence.is_truncated = True
    if count >= sequence.max_tokens:
        sequence.is_truncated = True
