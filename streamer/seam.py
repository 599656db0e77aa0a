"""How one text goes on after another, for protocols whose clients put them together as they are."""

from __future__ import annotations

from engine.api import Word
from streamer.transcript import join


def follow(before: str, text: str) -> str:
    """Give a text with a space in front, where what is before it and its script ask for one.

    Follows `join`, so that the pieces put together are the text that joining all of them gives.
    """
    last = before.rstrip()[-1:]
    pieces = [Word(piece, 0, 0, 1.0) for piece in (last, text)]
    return join(pieces)[len(last) :]
