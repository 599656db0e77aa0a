"""Speculative decoding with a stream's previous hypothesis as the draft.

A window of a stream mostly repeats the previous one with a little more at its end. The previous
tokens are proposed, the model verifies them all in one step, and those that greedy decoding would
have given are accepted. After a difference the old text usually continues in parallel, so the draft
realigns itself and goes on proposing. A wrong proposal costs a little time and never changes a
token.
"""

from __future__ import annotations

from collections.abc import Sequence

REALIGN_MAX_TOKENS = 16  # tokens searched for one that the draft did not expect
UNSURE_MAX_PROPOSAL = 3  # tokens; of a draft that has just lost its place, more are mostly wrong


class Draft:
    """A guess of a sequence's tokens, and how far the sequence has followed it."""

    def __init__(self, tokens: Sequence[int], timestamp_begin: int) -> None:
        """Begin with the last hypothesis' tokens, moved to the new window, without an end token."""
        self._tokens = list(tokens)
        self._timestamp_begin = timestamp_begin
        self._at = 0  # of _tokens: the token expected next
        self._matched = 0  # of _tokens: everything before has been placed for certain
        self._is_sure = True  # the last token was the one expected
        self._last: int | None = None

    def observe(self, token: int) -> None:
        """Follow a token that was sampled."""
        tokens = self._tokens
        self._last = token
        if self._at < len(tokens) and tokens[self._at] == token:
            self._at += 1
            self._matched = self._at
            self._is_sure = True
            return
        self._is_sure = False
        window = tokens[self._matched : self._matched + REALIGN_MAX_TOKENS]
        is_timestamp = token >= self._timestamp_begin
        for distance, candidate in enumerate(window):
            if candidate == token or (is_timestamp and candidate >= self._timestamp_begin):
                # it stands further on in the draft: what lies between was dropped
                self._at = self._matched + distance + 1
                return
        # most often one token stands in another's place
        self._at = min(self._at + 1, len(tokens))

    def propose(self, limit: int, ahead: int = 0) -> list[int]:
        """Return the tokens that should come next, at most `limit`.

        Args:
            ahead: tokens in flight, not observed yet; they are taken to be those that the draft
                expects.
        """
        if not self._is_sure:
            limit = min(limit, UNSURE_MAX_PROPOSAL)
        start = self._at + ahead
        proposal = self._tokens[start : start + max(limit, 0)]
        if (
            proposal
            and not ahead
            and self._last is not None
            and self._last >= self._timestamp_begin
            and proposal[0] >= self._timestamp_begin
        ):
            # a segment mostly begins where the one before it ended, wherever that now is
            proposal[0] = self._last
        return proposal


def move_draft(
    tokens: Sequence[int], shift: int, timestamp_begin: int, num_timestamps: int
) -> list[int]:
    """Move a hypothesis' tokens to a window that begins later.

    Text before the new start is dropped as far as timestamps show where it is.

    Args:
        tokens: as sampled, timestamps included.
        shift: how much later the window begins, in timestamp steps; not negative.
        timestamp_begin: the token of 0.00 s.
        num_timestamps: that the model has.
    """
    assert shift >= 0, shift
    if not shift:
        return list(tokens)
    moved: list[int] = []
    for token in tokens:
        if token < timestamp_begin:
            moved.append(token)
            continue
        time = token - timestamp_begin - shift
        if time <= 0:
            # the text so far ends before the window, or its segment began there
            moved = []
        moved.append(timestamp_begin + min(max(time, 0), num_timestamps - 1))
    # the closing timestamp of a dropped segment opens nothing
    while len(moved) > 1 and moved[0] >= timestamp_begin and moved[1] >= timestamp_begin:
        moved.pop(0)
    return moved
