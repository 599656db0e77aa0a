"""How audio and text arrive: when a sample was due, whether it is live, how long windows take."""

from __future__ import annotations

from engine.api import SAMPLE_RATE

MAX_CAPTION_DELAY_S = 0.5  # text that is overdue by more comes too late for live captions
MAX_LIVE_LEAD_S = 3.0  # audio sent further ahead of real time than this is a recording
OVERLOAD_LATENCY_S = 0.4  # of a window; on two idle cores, one of base takes 0.05 to 0.3 s
NEWEST_LATENCY_WEIGHT = 0.3  # in the running mean
LEAD_LEAK_S_PER_S = 0.05  # how fast a lead is forgotten that a stall of the network left behind
STALL_TIMEOUT_S = 1.0  # audio that stays away for this much longer than a packet has stopped


class Pace:
    """Follows the arrival of packets."""

    def __init__(self) -> None:
        # latest arrival of a packet less the position of its start: when a sample would have come
        # at the pace of real time is this plus its position
        self._lead_s = float("-inf")
        self._ahead_s = 0.0  # how much sooner than that the newest sample came
        self._received_at = 0.0
        self._largest_packet = 0
        self._asked_at = 0.0
        self.decode_latency_s = 0.0  # running mean over windows, their wait for the engine included

    def receive(self, start: int, end: int, packet: int, now: float) -> None:
        """Note the arrival of the samples from `start` to `end`, of a packet of so many samples."""
        elapsed_s = now - self._received_at
        self._received_at = now
        # one that was large is forgotten, too: half as fast as its audio plays
        self._largest_packet = max(packet, self._largest_packet - int(elapsed_s * SAMPLE_RATE / 2))
        self._lead_s = max(now - start / SAMPLE_RATE, self._lead_s - LEAD_LEAK_S_PER_S * elapsed_s)
        self._ahead_s = self.due_at(end) - now

    def ask(self, now: float) -> None:
        """Note that a window was handed out."""
        self._asked_at = now

    def answer(self, now: float) -> None:
        """Note that its hypothesis came."""
        self.decode_latency_s += NEWEST_LATENCY_WEIGHT * (
            now - self._asked_at - self.decode_latency_s
        )

    @property
    def is_live(self) -> bool:
        """Audio comes at about the pace at which it is spoken."""
        return self._ahead_s <= MAX_LIVE_LEAD_S

    @property
    def is_overloaded(self) -> bool:
        """Windows of live audio take so long that they had better be shorter."""
        return self.is_live and self.decode_latency_s > OVERLOAD_LATENCY_S

    def due_at(self, position: int) -> float:
        """Return when a sample would have come at the pace of real time."""
        return self._lead_s + position / SAMPLE_RATE

    def is_late(self, position: int, now: float) -> bool:
        """Return whether the text up to here comes too late for live captions."""
        return self.is_live and now >= self.late_at(position)

    def late_at(self, position: int) -> float:
        """Return from when on the text up to here is late for live captions."""
        return self.due_at(position) + MAX_CAPTION_DELAY_S

    @property
    def stops_at(self) -> float:
        """When audio counts as stopped, if none arrives until then."""
        return self._received_at + self._largest_packet / SAMPLE_RATE + STALL_TIMEOUT_S
