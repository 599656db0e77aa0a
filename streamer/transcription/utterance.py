"""The segment that is open: its windows, what was heard in them, and what was shown of it."""

from __future__ import annotations

import math

from engine.api import MAX_WINDOW, SAMPLE_RATE, Hypothesis, Word
from streamer.transcription.agreement import behind, uncovered
from streamer.transcription.boundary import best_boundary, first_boundary, quietest
from streamer.transcription.buffer import AudioBuffer
from streamer.transcription.events import Final, Partial
from streamer.transcription.hallucination import LEFT_OVER, FilteredHypothesis, filter_hypothesis
from streamer.transcription.second_pass import MAX_RECALL, SpokenContext
from streamer.transcription.settings import SessionSettings
from streamer.transcription.transcript import COMMIT_POLICIES, MIN_SURE_PROBABILITY, Transcript
from streamer.transcription.word import fit, is_sentence_end, join

CONTEXT = 6 * SAMPLE_RATE  # of settled sound that a window keeps: fewer errors than without any
CONTEXT_GAP = 2 * SAMPLE_RATE  # silence after which what was said before is no context any more
SLIDE_AFTER = 4 * SAMPLE_RATE  # a window longer than this and its context slides to a sentence end
SLIDE_HARD = 15 * SAMPLE_RATE  # ... and than this to any settled word's end
SLIDE_FORCED = 25 * SAMPLE_RATE  # ... and than this in any case
CUT_EARLY = 0.6  # of the longest segment, from where on a sentence's end closes it
SECOND_PASS_MAX_LENGTH = (
    9 * SAMPLE_RATE // 2
)  # a segment up to this may be read again with what was said before
SECOND_PASS_MIN_PROBABILITY_RATIO = (
    0.8  # of the first reading's probability: what the second one must have
)
MAX_WORDS_PER_S = 7  # words a second; a second reading of more says again what was said before
FORCED_MARGIN = 24_000  # 1.5 s at a window's end stay open in a forced slide


class Utterance:
    """What is known of the open segment."""

    def __init__(self, number: int, start: int, settings: SessionSettings) -> None:
        self.number = number
        self.settings = settings
        self.transcript = Transcript(start, COMMIT_POLICIES[settings.delay])
        self.window_start = start  # of its next window
        self.heard: FilteredHypothesis | None = None  # the newest marked window's
        self.needs_second_pass = False  # that window ends in a pause, and is worth a second reading
        self._second_pass_words: list[Word] | None = None  # in place of its unsettled words
        self._shown = ("", "")  # settled and volatile text, as it was told last

    @property
    def start(self) -> int:
        return self.transcript.start

    @property
    def context(self) -> int:
        """Samples in front of the segment in its newest marked window."""
        return max(0, self.start - self.heard.hypothesis.start) if self.heard is not None else 0

    @property
    def needed_from(self) -> int:
        """Where the sound begins that this segment, or a later one's second reading, may need."""
        is_recalled = self.end - self.start <= MAX_RECALL
        return min(self.start, self.window_start) if is_recalled else self.window_start

    @property
    def end(self) -> int:
        """End of its newest marked window."""
        return self.heard.hypothesis.end if self.heard is not None else self.window_start

    def hear(self, hypothesis: Hypothesis, *, is_pause: bool, may_settle: bool) -> None:
        """Take the text of a marked window."""
        if self.heard is not None and self.heard.hypothesis.language != hypothesis.language:
            self.transcript.forget_disagreement()
        self.heard, self._second_pass_words = filter_hypothesis(hypothesis), None
        self.transcript.agree(
            self.heard.words, hypothesis.end, is_pause=is_pause, may_settle=may_settle
        )
        words = self.transcript.newest
        is_short = is_pause and hypothesis.end - self.start <= SECOND_PASS_MAX_LENGTH
        self.needs_second_pass = (
            is_short and bool(words) and _probability(words) < MIN_SURE_PROBABILITY
        )

    def accept_second_pass(self, hypothesis: Hypothesis, context: SpokenContext) -> None:
        """Take a second reading of the segment up to the newest marked window's end.

        It counts only if the segment ends there.

        Args:
            hypothesis: of the segment behind its context.
            context: what was said before.
        """
        heard, again = self.heard, filter_hypothesis(hypothesis)
        assert heard is not None and heard.hypothesis.end == hypothesis.end, hypothesis.end
        known = [*context.words, *self.transcript.settled]
        words = behind(self.start, uncovered(known, again.words))
        is_fluent = len(words) * SAMPLE_RATE <= MAX_WORDS_PER_S * (hypothesis.end - self.start)
        is_same_language = heard.hypothesis.language == hypothesis.language
        before = self.transcript.newest
        if not (before and words) or again.has_loop or not is_fluent or not is_same_language:
            return
        if _probability(words) >= SECOND_PASS_MIN_PROBABILITY_RATIO * _probability(before):
            self._second_pass_words = words

    def preview(self, hypothesis: Hypothesis) -> None:
        """Take the text of a window that only refreshes what is shown."""
        heard = filter_hypothesis(hypothesis)
        if heard.reason is None:
            self.transcript.preview(heard.words, hypothesis.end)

    def has_heard(self, end: int) -> bool:
        """Tell whether the newest marked window is the one that ends here."""
        return self.heard is not None and self.heard.hypothesis.end == end

    def go_on_behind(self, end: int) -> bool:
        """Settle what was heard up to `end`; tell whether some of it is still to be decoded.

        The model may stop at a timestamp though people speak on, run out of room, or take what is
        said again for what it has said. What lies behind its last word is decoded in a further
        window.
        """
        heard = self.heard
        assert heard is not None
        self.transcript.complete(self._second_pass_words)
        self._second_pass_words = None  # settled once, though the segment may end here twice
        if heard.has_loop or not heard.words:
            return False
        anchors = self.transcript.anchors
        last = anchors[-1].end if anchors else self.window_start
        unread = max(last, self.start)
        if end - unread < LEFT_OVER or last - self.window_start < LEFT_OVER:
            return False
        self.window_start = unread
        self.transcript.slide(len(anchors))
        self.heard = None
        return True

    def resume(self, start: int, buffer: AudioBuffer) -> None:
        """Begin a new window after a rest."""
        self.window_start, num_left_out = self._find_context(start, buffer, CONTEXT)
        self.transcript.slide(num_left_out)
        self.heard = None

    def follow(self, before: Utterance, buffer: AudioBuffer, context: int) -> None:
        """Begin the first window with up to so much sound of the segment before, and its words.

        Without any, it still begins behind that segment's last word if this is near: a soft word
        may lie between the two.
        """
        self.window_start, num_left_out = before._find_context(self.start, buffer, context)
        anchors = before.transcript.anchors[num_left_out:]
        floor = min(before.end, self.start)
        self.transcript = Transcript(self.start, self.transcript.policy, anchors, floor)

    def _find_context(self, start: int, buffer: AudioBuffer, context: int) -> tuple[int, int]:
        """Find where a window for speech that starts at `start` may begin in this segment's last.

        Returns:
            The window's start, and how many of the anchors lie before it.
        """
        words = self.transcript.anchors
        if not words or start - self.end > CONTEXT_GAP:
            return start, len(words)
        if buffer.start <= self.window_start and start - self.window_start <= context:
            return self.window_start, 0
        boundary = first_boundary(words, start - context)
        if boundary is not None:
            return quietest(buffer, boundary.start, boundary.end), boundary.num_words
        last = words[-1].end
        if buffer.start <= last < start <= last + CONTEXT_GAP:
            return quietest(buffer, last, start), len(words)
        return start, len(words)

    def must_slide(self, end: int) -> bool:
        """Tell whether the window or the segment gets too long unless words settle here."""
        return end - self.window_start >= SLIDE_FORCED or self._is_too_long(end)

    def _is_too_long(self, end: int) -> bool:
        return end - self.start >= self.settings.max_segment and not self.settings.is_manual

    def slide(self, end: int, buffer: AudioBuffer, context: int) -> None:
        """Move the window's start past settled text, if the window that ended here was long.

        Args:
            end: of the window.
            buffer: of the channel.
            context: settled sound that the next window is to keep.
        """
        length = end - self.window_start
        assert length <= MAX_WINDOW, (self.window_start, end)
        is_forced = length >= SLIDE_FORCED
        if self.must_slide(end):
            self.transcript.settle_until(end - FORCED_MARGIN)
        if length < context + SLIDE_AFTER:
            return
        boundary = best_boundary(
            self.transcript.anchors,
            self.transcript.volatile,
            end - context,
            is_sentence_wanted=length < SLIDE_HARD,
        )
        if boundary is not None:
            first = max(boundary.start, self.window_start + 1)
            self.window_start = quietest(buffer, first, max(boundary.end, first))
            self.transcript.slide(boundary.num_words)
        elif is_forced and not self.transcript.anchors:
            # nothing but sound without words; what may begin a word is kept
            self.window_start = quietest(buffer, end - 2 * FORCED_MARGIN, end - FORCED_MARGIN)

    def cut(self, end: int, buffer: AudioBuffer) -> Utterance | None:
        """Close a long segment behind its settled words, at the end of a sentence if it can wait.

        Returns:
            The segment that goes on with the rest; None where it is too early to cut.
        """
        settled = self.transcript.settled
        is_late = end - self.start >= CUT_EARLY * self.settings.max_segment
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
        rest.heard = self.heard
        return rest

    def partial(
        self, hypothesis: Hypothesis, channel: int, language: str, lag: int
    ) -> Partial | None:
        """Tell what to show now; None if it is what was shown last."""
        settled = join(self.transcript.settled)
        whole = join([*self.transcript.settled, *self.transcript.stable])
        shown = (settled, whole[len(settled) :])
        if shown == self._shown:
            return None
        self._shown = shown
        return Partial(
            channel=channel,
            segment=self.number,
            settled=shown[0],
            volatile=shown[1],
            start=self.start,
            end=hypothesis.end,
            language=language,
            lag=lag,
        )

    def final(self, end: int, channel: int, language: str, lag: int, *, is_endpoint: bool) -> Final:
        """Tell all that was settled, at the segment's end."""
        words = fit(self.transcript.settled, self.start, end)
        heard = self.heard
        hypothesis = heard.hypothesis if heard else None
        return Final(
            channel=channel,
            segment=self.number,
            text=join(words),
            start=self.start,
            end=end,
            language=language,
            language_probability=hypothesis.language_probability if hypothesis else 0.0,
            words=words if self.settings.word_times else (),
            avg_logprob=hypothesis.avg_logprob if hypothesis else 0.0,
            no_speech_probability=hypothesis.no_speech_probability if hypothesis else 1.0,
            is_endpoint=is_endpoint,
            reason=None if words else (heard.reason if heard else None) or "no_speech",
            lag=lag,
        )


def _probability(words: list[Word]) -> float:
    """Give the geometric mean of the words' probabilities."""
    return math.exp(sum(math.log(max(word.probability, 1e-3)) for word in words) / len(words))
