"""The model input of a sequence for one decoder step."""

from __future__ import annotations

from dataclasses import dataclass

from engine.batching.sequence import Sequence


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
