"""The utterance that is open: its windows, what was decoded in them, and where it is cut."""

from __future__ import annotations

from engine.api import MAX_WINDOW, SAMPLE_RATE, Hypothesis, Word
from streamer.transcription.boundary import best_boundary, first_boundary, quietest
from streamer.transcription.buffer import AudioBuffer
from streamer.transcription.hallucination import (
    MIN_REST_LENGTH,
    FilteredHypothesis,
    filter_hypothesis,
)
from streamer.transcription.settings import SessionSettings
from streamer.transcription.stability import COMMIT_POLICIES, Transcript
from streamer.transcription.word import fit, is_sentence_end, join

CONTEXT_LENGTH = 6 * SAMPLE_RATE  # of settled audio kept in a window: fewer errors than without
MAX_CONTEXT_GAP = 2 * SAMPLE_RATE  # silence after which what was said before is no longer context
SLIDE_AFTER = 4 * SAMPLE_RATE  # a window longer than this and its context slides to a sentence end
SLIDE_IN_SENTENCE_AFTER = 15 * SAMPLE_RATE  # a longer one slides to the end of any settled word
FORCED_SLIDE_AFTER = 25 * SAMPLE_RATE  # a longer one slides in any case
EARLY_CUT_RATIO = 0.6  # of the longest utterance: from there on, the end of a sentence closes it
FORCED_SLIDE_MARGIN = 24_000  # 1.5 s at a window's end stay open in a forced slide


class Utterance:
    """What is known of the speech between two pauses: a segment, on the wire."""

    def __init__(self, number: int, start: int, settings: SessionSettings) -> None:
        self.number = number
        self.settings = settings
        self.transcript = Transcript(start, COMMIT_POLICIES[settings.delay])
        self.window_start = start  # of its next window
        # of the newest decode point whose window begins at window_start; None before there is one
        self.decoded: FilteredHypothesis | None = None

    @property
    def start(self) -> int:
        return self.transcript.start

    @property
    def context(self) -> int:
        """Samples before the utterance in the window of its newest decode point."""
        return max(0, self.start - self.decoded.hypothesis.start) if self.decoded is not None else 0

    @property
    def end(self) -> int:
        """End of the window of its newest decode point."""
        return self.decoded.hypothesis.end if self.decoded is not None else self.window_start

    def accept(self, hypothesis: Hypothesis, *, is_pause: bool, may_settle: bool) -> list[Word]:
        """Take the text of a decode point.

        Args:
            hypothesis: of the whole window.
            is_pause: silence follows the last word.
            may_settle: False keeps all words for `complete`.

        Returns:
            The words that are not settled.
        """
        if self.decoded is not None and self.decoded.hypothesis.language != hypothesis.language:
            self.transcript.forget_disagreement()
        self.decoded = filter_hypothesis(hypothesis)
        self.transcript.agree(
            self.decoded.words, hypothesis.end, is_pause=is_pause, may_settle=may_settle
        )
        return self.transcript.newest

    def preview(self, hypothesis: Hypothesis) -> None:
        """Take the text of a window that only refreshes what is shown."""
        decoded = filter_hypothesis(hypothesis)
        if decoded.reason is None:
            self.transcript.preview(decoded.words, hypothesis.end)

    def has_decoded(self, end: int) -> bool:
        """Return whether the newest decode point is the one that ends here."""
        return self.decoded is not None and self.decoded.hypothesis.end == end

    def complete(self, end: int) -> bool:
        """Settle what was decoded up to `end`; return whether some of it needs a further window.

        The model may stop at a timestamp though people speak on, run out of room, or take what is
        repeated for what it has written. What lies behind its last word is decoded in a further
        window.
        """
        decoded = self.decoded
        assert decoded is not None
        self.transcript.complete()
        if decoded.has_loop or not decoded.words:
            return False
        anchors = self.transcript.anchors
        last = anchors[-1].end if anchors else self.window_start
        unread = max(last, self.start)
        if end - unread < MIN_REST_LENGTH or last - self.window_start < MIN_REST_LENGTH:
            return False
        self.window_start = unread
        self.transcript.slide(len(anchors))
        self.decoded = None
        return True

    def resume(self, start: int, buffer: AudioBuffer) -> None:
        """Begin a new window after a pause."""
        self.window_start, num_left_out = self._find_context(start, buffer, CONTEXT_LENGTH)
        self.transcript.slide(num_left_out)
        self.decoded = None

    def follow(self, before: Utterance, buffer: AudioBuffer, context: int) -> None:
        """Begin the first window with up to so much audio of the utterance before, and its words.

        Without any, it still begins behind that utterance's last word if this is near: a soft word
        may lie between the two.
        """
        self.window_start, num_left_out = before._find_context(self.start, buffer, context)
        anchors = before.transcript.anchors[num_left_out:]
        floor = min(before.end, self.start)
        self.transcript = Transcript(self.start, self.transcript.policy, anchors, floor)

    def _find_context(self, start: int, buffer: AudioBuffer, context: int) -> tuple[int, int]:
        """Find where a window for speech that starts at `start` may begin in this one's last.

        Returns:
            The window's start, and how many of the anchors lie before it.
        """
        words = self.transcript.anchors
        if not words or start - self.end > MAX_CONTEXT_GAP:
            return start, len(words)
        if buffer.start <= self.window_start and start - self.window_start <= context:
            return self.window_start, 0
        boundary = first_boundary(words, start - context)
        if boundary is not None:
            return quietest(buffer, boundary.start, boundary.end), boundary.num_words
        last = words[-1].end
        if buffer.start <= last < start <= last + MAX_CONTEXT_GAP:
            return quietest(buffer, last, start), len(words)
        return start, len(words)

    def must_slide(self, end: int) -> bool:
        """Return whether the window or the utterance gets too long unless words settle here."""
        return end - self.window_start >= FORCED_SLIDE_AFTER or self._is_too_long(end)

    def _is_too_long(self, end: int) -> bool:
        return end - self.start >= self.settings.max_segment and not self.settings.is_manual

    def move_on(self, end: int, buffer: AudioBuffer, context: int) -> Utterance | None:
        """Leave settled text behind, first in the window and then, if it is long, for good.

        Args:
            end: of the window that was decoded.
            buffer: of the channel.
            context: settled audio that the next window is to keep.

        Returns:
            The utterance that goes on with the rest, where this one is cut; else None.
        """
        self.slide(end, buffer, context)
        return self.cut(end, buffer)

    def slide(self, end: int, buffer: AudioBuffer, context: int) -> None:
        """Move the window's start past settled text, if the window that ended here was long.

        Args:
            end: of the window.
            buffer: of the channel.
            context: settled audio that the next window is to keep.
        """
        length = end - self.window_start
        assert length <= MAX_WINDOW, (self.window_start, end)
        is_forced = length >= FORCED_SLIDE_AFTER
        if self.must_slide(end):
            self.transcript.settle_until(end - FORCED_SLIDE_MARGIN)
        if length < context + SLIDE_AFTER:
            return
        boundary = best_boundary(
            self.transcript.anchors,
            self.transcript.volatile,
            end - context,
            is_sentence_wanted=length < SLIDE_IN_SENTENCE_AFTER,
        )
        if boundary is not None:
            first = max(boundary.start, self.window_start + 1)
            self.window_start = quietest(buffer, first, max(boundary.end, first))
            self.transcript.slide(boundary.num_words)
        elif is_forced:
            self._slide_without_boundary(end, buffer)

    def _slide_without_boundary(self, end: int, buffer: AudioBuffer) -> None:
        """Move the window's start to its end, where it holds next to no words to go by.

        What may begin a word is kept.
        """
        earliest, latest = end - 2 * FORCED_SLIDE_MARGIN, end - FORCED_SLIDE_MARGIN
        # a word that lasts longer than that is a guess of the alignment
        self.transcript.settle_begun(earliest)
        anchors = self.transcript.anchors
        num_before = sum(word.start < earliest or word.end <= latest for word in anchors)
        earliest = max([earliest, *(min(word.end, latest) for word in anchors[:num_before])])
        following = [*anchors[num_before:], *self.transcript.volatile]
        latest = min([latest, *(word.start for word in following)])
        self.window_start = quietest(buffer, min(earliest, latest), latest)
        self.transcript.slide(num_before)

    def cut(self, end: int, buffer: AudioBuffer) -> Utterance | None:
        """Close a long utterance behind its settled words, at a sentence's end if it can wait.

        Returns:
            The utterance that goes on with the rest; None where it is too early to cut.
        """
        settled = self.transcript.settled
        is_late = end - self.start >= EARLY_CUT_RATIO * self.settings.max_segment
        if not settled or self.settings.is_manual or not is_late:
            return None
        if not (is_sentence_end(settled[-1]) or self._is_too_long(end)):
            return None
        volatile = self.transcript.volatile
        following = volatile[0].start if volatile else end
        last = max(settled[-1].end, self.start + 1)
        start = quietest(buffer, last, max(following, last))
        rest = Utterance(self.number + 1, start, self.settings)
        rest.transcript = self.transcript.cut(start)
        rest.window_start = self.window_start
        rest.decoded = self.decoded
        return rest

    def shown_text(self) -> tuple[str, str]:
        """Return the settled text, and the volatile text behind it that is worth showing."""
        settled = join(self.transcript.settled)
        whole = join([*self.transcript.settled, *self.transcript.stable])
        return settled, whole[len(settled) :]

    def final_words(self, end: int) -> tuple[Word, ...]:
        """Return all settled words, their times inside the utterance, which ends here."""
        return fit(self.transcript.settled, self.start, end)
