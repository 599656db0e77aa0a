"""Which of a step's sampled tokens a sequence accepts: the verification of its draft."""

from __future__ import annotations

from collections.abc import Sequence as Rows

from engine.batching.counters import Counters
from engine.batching.sequence import Sequence
from engine.decoding.repetition import find_loop
from engine.decoding.rules import Rules

LOOP_CHECK_INTERVAL = 8  # tokens between two searches for a loop


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
