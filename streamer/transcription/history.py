"""What was said on a channel before the open utterance: context for its windows."""

from __future__ import annotations

from streamer.transcription.buffer import AudioBuffer
from streamer.transcription.second_pass import MAX_RECENT_LENGTH, RecentUtterances
from streamer.transcription.utterance import CONTEXT_LENGTH, MAX_CONTEXT_GAP, Utterance


class History:
    """Keeps the utterance that closed last, and the audio of those that are close enough.

    Attributes:
        recent: context for a second pass.
    """

    def __init__(self) -> None:
        self.recent = RecentUtterances()
        self._last: Utterance | None = None  # closed a moment ago
        self._floor = -1  # audio and words up to here are not context

    def add(self, utterance: Utterance, end: int, buffer: AudioBuffer) -> None:
        """Keep an utterance that ends here."""
        if end > self._floor:
            self.recent.add(utterance.start, end, buffer, utterance.transcript.settled)
        self._last = utterance

    def forget_before(self, position: int) -> None:
        """Keep what lies before a position out of all that follows."""
        self._floor = position
        self.recent.forget()

    def precede(
        self, utterance: Utterance, buffer: AudioBuffer, context: int, *, has_same_options: bool
    ) -> None:
        """Let a new utterance begin with the context that there is for it.

        Args:
            utterance: without a window so far.
            buffer: of the channel.
            context: samples that its first window may have.
            has_same_options: it is in the same language as what was said before.
        """
        self.recent.forget_if_old(utterance.start)
        if not has_same_options:
            self.recent.forget()
        elif self._last is not None and self._last.end > self._floor:
            utterance.follow(self._last, buffer, context)

    def needed_from(self, position: int) -> int:
        """Return where the audio begins that an utterance may need which begins here."""
        self.recent.forget_if_old(position)
        if self._last is not None and position - self._last.end > MAX_CONTEXT_GAP:
            self._last = None
        return position if self._last is None else min(position, self._last.end - CONTEXT_LENGTH)

    def needed_during(self, utterance: Utterance) -> int:
        """Return where the audio begins that this open utterance, or a later one, may need."""
        if utterance.end - utterance.start > MAX_RECENT_LENGTH:
            return utterance.window_start
        return min(utterance.start, utterance.window_start)
