"""What a client keeps for a broken connection: audio without final text, and where times begin.

Pure. A session that can be resumed continues at the byte where audio stopped arriving. A session
that is gone is begun again at the end of the final text; the times and numbers of its messages
continue those of the session before.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from typing import TypeVar

from streamer.protocol import (
    Done,
    Final,
    Partial,
    ServerMessage,
    SpeechEnded,
    SpeechStarted,
    Start,
)

SAMPLE_BYTES = {"pcm_s16le": 2, "pcm_f32le": 4, "mulaw": 1, "alaw": 1}
KEPT_S = 300.0  # of audio; a server that is further behind than this may lose words

Segmented = TypeVar("Segmented", SpeechStarted, SpeechEnded, Partial, Final)


class Keeper:
    """The audio of one recording, and the position of the server's session in it."""

    def __init__(self, start: Start) -> None:
        # a container's bytes have no times, and it cannot be decoded from the middle
        self.can_restart = start.encoding in SAMPLE_BYTES
        self._frame_bytes = SAMPLE_BYTES.get(start.encoding, 1) * start.channels
        self._bytes_per_second = self._frame_bytes * start.sample_rate
        self._pieces: deque[bytes] = deque()
        self._first = 0  # byte at which the oldest piece begins
        self.total = 0  # bytes recorded
        self.base = 0  # byte at which the server's session began
        self._segment_base = 0  # added to the session's segment numbers
        self._next_segment = 0
        self._final_ends: dict[int, float] = {}  # s, by channel, up to where all text is final
        self._open_starts: dict[int, float] = {}  # s, by channel, of segments without a final

    def add(self, data: bytes) -> None:
        """Keep a piece of audio; drop the oldest if its text is final, or beyond KEPT_S."""
        self._pieces.append(data)
        self.total += len(data)
        oldest = min(self._restart_byte(), self.total)
        oldest = max(oldest, self.total - int(KEPT_S * self._bytes_per_second))
        while self._pieces and self._first + len(self._pieces[0]) <= oldest:
            self._first += len(self._pieces.popleft())

    def after(self, byte: int) -> list[bytes]:
        """Return the audio from a byte of the recording on; what is no longer kept is silence."""
        found: deque[bytes] = deque()
        position = self.total
        for piece in reversed(self._pieces):  # what is not sent yet is mostly the last piece
            if position <= byte:
                break
            position -= len(piece)
            found.appendleft(piece[max(0, byte - position) :])
        if byte < self._first:
            found.appendleft(bytes(self._first - byte))
        return list(found)

    def seconds_after(self, byte: int) -> float:
        """Return how much audio follows a byte, in seconds."""
        return (self.total - byte) / self._bytes_per_second

    def restart(self, done: Done | None = None) -> None:
        """Begin a new session where the old one says it ended, or else behind the final text."""
        byte = self.base + self._bytes(done.duration) if done else self._restart_byte()
        self.base = min(max(byte, self._first), self.total)
        self.base -= self.base % self._frame_bytes
        self._segment_base = self._next_segment
        self._open_starts.clear()

    def place(self, message: ServerMessage) -> ServerMessage | None:
        """Return a message in the times and numbers of the recording, or None if it is known."""
        match message:
            case SpeechStarted():
                placed = self._number(message)
                placed = dataclasses.replace(placed, start=self._time(message.start))
                self._open_starts.setdefault(placed.channel, placed.start)
                return placed
            case SpeechEnded():
                return dataclasses.replace(self._number(message), end=self._time(message.end))
            case Partial():
                placed_partial = self._span(message)
                self._open_starts.setdefault(placed_partial.channel, placed_partial.start)
                return None if self._is_known(placed_partial) else placed_partial
            case Final():
                placed_final = self._span(message)
                if self._is_known(placed_final):
                    return None
                self._open_starts.pop(message.channel, None)
                self._final_ends[message.channel] = placed_final.end
                return self._place_words(placed_final)
            case Done():
                return dataclasses.replace(
                    message, duration=self._time(message.duration), segments=self._next_segment
                )
            case _:
                return message

    def _restart_byte(self) -> int:
        """Return the byte up to which every channel with text is final."""
        if not self.can_restart:
            return 0
        if self._open_starts:
            return self._bytes(min(self._open_starts.values()))
        return self._bytes(max(self._final_ends.values(), default=0.0))

    def _is_known(self, message: Partial | Final) -> bool:
        # a channel that was ahead of another is transcribed again from where that one was
        return message.end <= self._final_ends.get(message.channel, -1.0)

    def _number(self, message: Segmented) -> Segmented:
        segment = self._segment_base + message.segment
        self._next_segment = max(self._next_segment, segment + 1)
        return dataclasses.replace(message, segment=segment)

    def _span(self, message: Segmented) -> Segmented:
        placed = self._number(message)
        assert isinstance(message, Partial | Final)
        return dataclasses.replace(
            placed, start=self._time(message.start), end=self._time(message.end)
        )

    def _place_words(self, final: Final) -> Final:
        if not final.words or not self.base:
            return final
        words = [
            dataclasses.replace(word, start=self._time(word.start), end=self._time(word.end))
            for word in final.words
        ]
        return dataclasses.replace(final, words=words)

    def _time(self, seconds: float) -> float:
        return round(seconds + self.base / self._bytes_per_second, 3)

    def _bytes(self, seconds: float) -> int:
        return round(seconds * self._bytes_per_second / self._frame_bytes) * self._frame_bytes
