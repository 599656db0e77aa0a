"""Chunks of a telephone track put in order; what is lost becomes silence.

Pure. A chunk that comes too early waits for those before it, for as many chunks as the wait
allows, and what has not come by then counts as lost. Positions stay true to the call: a lost chunk
is replaced by silence of its length, and where a track pauses, or starts after the call did, the
timestamps say by how much.
"""

from __future__ import annotations

MAX_WAITING_CHUNKS = 10  # chunks behind a missing one: 200 ms at 20 ms each
MAX_GAP_S = 300  # silence put in at once; a larger step is an error in the numbers
# chunk times jitter by a frame or two; below this they are no reason to put silence in
MIN_DRIFT_MS = 100


class ChunkOrder:
    """One track.

    Attributes:
        num_lost: chunks replaced by silence.
        num_late: chunks that came after they were given up, or twice.
    """

    def __init__(self, bytes_per_ms: int, silence: int, max_wait: int = MAX_WAITING_CHUNKS) -> None:
        """Begin a track.

        Args:
            bytes_per_ms: of the encoding, 8 for mu-law at 8 kHz.
            silence: the byte that is silence in this encoding.
            max_wait: chunks that may wait for a missing one.
        """
        self.num_lost = 0
        self.num_late = 0
        self._bytes_per_ms = bytes_per_ms
        self._silence = bytes([silence])
        self._max_wait = max_wait
        self._next = 1  # number of the chunk that comes next
        self._position = 0  # bytes given out
        # chunks that came early: number -> (timestamp, payload); at most max_wait + 1
        self._held: dict[int, tuple[int | None, bytes]] = {}
        self._trusts_timestamps = True

    def put(self, chunk: int | None, timestamp_ms: int | None, payload: bytes) -> bytes:
        """Take a chunk; return the audio that is in order now, perhaps none.

        A chunk without a number follows the last one.
        """
        if chunk is None:
            chunk = max(self._held, default=self._next - 1) + 1
        if chunk == 0 and not self._position and not self._held:
            self._next = 0  # some count from 0
        if chunk < self._next or chunk in self._held:
            self.num_late += 1
            return b""
        self._held[chunk] = (timestamp_ms, payload)
        out = self._drain()
        if len(self._held) > self._max_wait:
            out += self._give_up()
        return out

    def flush(self) -> bytes:
        """Return all that waits, at the end of the track."""
        out = b""
        while self._held:
            out += self._give_up()
        return out

    def _give_up(self) -> bytes:
        """Count what is missing before the first chunk that waits as lost."""
        first = min(self._held)
        timestamp_ms, payload = self._held[first]
        num_missing, lost = first - self._next, (first - self._next) * len(payload)
        self._next = first
        if not self._position and timestamp_ms is not None:
            # the track may not have begun with the number 1; its time says when it did
            num_missing = lost = 0
        if lost > MAX_GAP_S * 1000 * self._bytes_per_ms:
            # no call loses minutes in one go: the numbers are not what they seem
            lost = 0
        else:
            self.num_lost += num_missing
        self._position += lost
        return self._silence * lost + self._drain()

    def _drain(self) -> bytes:
        out = bytearray()
        while self._next in self._held:
            timestamp_ms, payload = self._held.pop(self._next)
            self._next += 1
            gap = self._behind(timestamp_ms)
            out += self._silence * gap + payload
            self._position += gap + len(payload)
        return bytes(out)

    def _behind(self, timestamp_ms: int | None) -> int:
        """Bytes of silence that bring the track to where the timestamp says it is."""
        if timestamp_ms is None or not self._trusts_timestamps:
            return 0
        gap = timestamp_ms * self._bytes_per_ms - self._position
        if gap > MAX_GAP_S * 1000 * self._bytes_per_ms:
            # they do not count from the start of the stream
            self._trusts_timestamps = False
            return 0
        return gap if gap >= MIN_DRIFT_MS * self._bytes_per_ms else 0
