"""What a session has said and its client may not have: the queue to the socket, and its memory.

Pure. Messages are numbered in order. A partial supersedes the one before it of the same
segment, so a slow or absent client costs no memory for text that has changed since; the numbers
then have gaps.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_SENT_BYTES = 128 * 1024  # kept of what was sent already: minutes of talk, with word times


@dataclass(frozen=True, slots=True)
class Entry:
    """A message as it goes to the client."""

    seq: int
    text: str
    partial_of: tuple[int, int] | None  # channel and segment, where a later one replaces it


class Journal:
    """An append-only list of messages that forgets what was delivered long ago."""

    def __init__(self, *, max_bytes: int = MAX_SENT_BYTES) -> None:
        self.keep_sent = False  # for a client that may come back without having read it
        self._max_bytes = max_bytes
        self._entries: dict[int, Entry] = {}  # by seq, in order
        self._partials: dict[tuple[int, int], int] = {}  # seq of each open segment's newest
        self._num_bytes = 0
        self._sent = -1  # seq up to which all went to the socket
        self._forgotten = -1  # seq up to which sent messages are gone
        self.next_seq = 0

    @property
    def num_bytes(self) -> int:
        """Characters held; a bound on them is a bound on memory."""
        return self._num_bytes

    @property
    def num_unsent_bytes(self) -> int:
        """Characters that the socket has not taken yet."""
        return sum(len(entry.text) for entry in self.after(self._sent))

    def append(self, text: str, *, partial_of: tuple[int, int] | None = None) -> None:
        """Add the message numbered `next_seq`."""
        seq = self.next_seq
        self.next_seq += 1
        if partial_of is not None:
            if (replaced := self._partials.get(partial_of)) is not None:
                self._drop(replaced)
            self._partials[partial_of] = seq
        self._entries[seq] = Entry(seq, text, partial_of)
        self._num_bytes += len(text)

    def close_segment(self, segment: tuple[int, int]) -> None:
        """Forget a segment's partial: its final says all of it."""
        if (seq := self._partials.get(segment)) is not None:
            self._drop(seq)

    def after(self, seq: int) -> list[Entry]:
        """List what a client that has all up to `seq` does not have."""
        found = []
        for number in reversed(self._entries):  # the wanted ones are few, and last
            if number <= seq:
                break
            found.append(self._entries[number])
        return found[::-1]

    def has_all_after(self, seq: int) -> bool:
        """Return whether nothing after `seq` was forgotten, except superseded partials."""
        return self._forgotten <= seq < self.next_seq

    def mark_sent(self, seq: int) -> None:
        """Note that all up to `seq` went to the socket; the oldest of it may be forgotten."""
        self._sent = max(self._sent, seq)
        limit = self._max_bytes if self.keep_sent else 0
        while self._num_bytes > limit:
            oldest = next(iter(self._entries))
            if oldest > self._sent:
                return
            self._forgotten = oldest
            self._drop(oldest)

    def _drop(self, seq: int) -> None:
        entry = self._entries.pop(seq)
        self._num_bytes -= len(entry.text)
        if entry.partial_of is not None and self._partials.get(entry.partial_of) == seq:
            del self._partials[entry.partial_of]
