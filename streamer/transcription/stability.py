"""The words of one utterance: what is settled, and what may still change.

Pure text: hypotheses go in, in the order of their windows. A word settles when enough successive
hypotheses agree on it and enough audio follows it; what is settled never changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.api import Word
from streamer.transcription.alignment import behind, num_agreed, uncovered
from streamer.transcription.settings import Delay


@dataclass(frozen=True, slots=True)
class CommitPolicy:
    """When a word may settle."""

    num_hypotheses: int  # successive ones that agree on it, the newest included
    num_unsure: int  # ... if the model is not sure of it
    margin: int  # samples between the word's end and the end of the newest window


MIN_SURE_PROBABILITY = 0.8  # probability from which the model is sure of a word
TRUSTED_AFTER = 40_000  # 2.5 s: more audio behind a word than this makes the model no surer of it
# A volatile word that ends within UNSHOWN_MARGIN of the window's end is not shown, since the end
# may cut it. One less likely than MIN_SHOWN_PROBABILITY is shown only once a second hypothesis has
# it. Far fewer of the words shown change then: docs/streaming.md.
UNSHOWN_MARGIN = 2_400  # 0.15 s
MIN_SHOWN_PROBABILITY = 0.5
MAX_WORDS_REMOVED = 3  # from what is shown, at once; if more, the next hypothesis decides

COMMIT_POLICIES = {
    Delay.MINIMAL: CommitPolicy(2, 2, 0),
    Delay.LOW: CommitPolicy(2, 4, 6_400),
    Delay.MEDIUM: CommitPolicy(3, 4, 12_800),
    Delay.HIGH: CommitPolicy(3, 5, 16_000),
    Delay.XHIGH: CommitPolicy(4, 6, 32_000),
}


class Transcript:
    """Collects the words of one utterance."""

    def __init__(
        self, start: int, policy: CommitPolicy, context: Sequence[Word] = (), floor: int = 0
    ) -> None:
        """Begin without words of its own.

        Args:
            start: of the utterance, in samples from the start of the stream.
            policy: when words settle.
            context: words of the utterance before that are inside the first window.
            floor: end of the utterance before; words that end by then are not taken again.
        """
        self.start = start
        self.policy = policy
        self.settled: list[Word] = []
        self.volatile: list[Word] = []
        self._context = list(context)
        self._floor = floor
        self._num_slid = 0  # settled words that lie before the window
        self._tails: list[list[Word]] = []  # unsettled words of the last hypotheses, oldest first
        self._revision: list[Word] | None = None  # what the newest of them is to be replaced by
        self._before: list[Word] = []  # the volatile words before the newest ones
        self._boundary = 0  # end of the newest window, if it may have cut a word
        self.stable: list[Word] = []  # volatile words that are worth showing

    @property
    def anchors(self) -> list[Word]:
        """The words inside the window that are settled, here or in the utterance before."""
        return self._context + self.settled[self._num_slid :]

    def preview(self, words: Sequence[Word], end: int) -> None:
        """Show a hypothesis that does not count for settling."""
        self._before, self._boundary = self.volatile, end
        self.volatile = self._new(words)
        self._choose_stable()

    def agree(self, words: Sequence[Word], end: int, *, is_pause: bool, may_settle: bool) -> None:
        """Take the hypothesis of a decode point; settle what it shares with those before it.

        Args:
            words: of the hypothesis of the whole window.
            end: of the window.
            is_pause: silence follows the last word, so no word is cut by the window's end.
            may_settle: False only keeps the words for `complete`.
        """
        tail = self._new(words)
        count = 0
        if may_settle:
            count = self._num_trusted(tail, end)
        if not is_pause:
            last = end - self.policy.margin
            count = min(count, sum(word.end <= last for word in tail), max(0, len(tail) - 1))
        self._tails = [*self._tails, tail][-self.policy.num_unsure :]
        self._revision = None
        self._before, self._boundary = self.volatile, end + UNSHOWN_MARGIN if is_pause else end
        self.volatile = tail
        self._settle(count)
        self._choose_stable()

    def _new(self, words: Sequence[Word]) -> list[Word]:
        """Return the words of a hypothesis that are neither settled nor the utterance before's."""
        return behind(self._floor, uncovered(self.anchors, words))

    def _choose_stable(self) -> None:
        """Choose what to show: words at the end often change at once.

        A word that is new and unlikely hides all behind it. People would see most of a line vanish
        and come back, so what is shown stays until a hypothesis has about as much.
        """
        num_agreed_before = num_agreed(self._before, self.volatile)
        count = 0
        for index, word in enumerate(self.volatile):
            is_likely = index < num_agreed_before or word.probability >= MIN_SHOWN_PROBABILITY
            if word.end > self._boundary - UNSHOWN_MARGIN or not is_likely:
                break
            count += 1
        if count >= len(self.stable) - MAX_WORDS_REMOVED:
            self.stable = self.volatile[:count]

    def _num_trusted(self, tail: Sequence[Word], end: int) -> int:
        """Count the words at the start of a new tail that enough hypotheses share."""
        agreed = [num_agreed(older, tail) for older in reversed(self._tails)]
        for index, word in enumerate(tail):
            is_sure = word.probability >= MIN_SURE_PROBABILITY or end - word.end >= TRUSTED_AFTER
            num_wanted = self.policy.num_hypotheses if is_sure else self.policy.num_unsure
            num_others = num_wanted - 1
            if len(agreed) < num_others or min(agreed[:num_others], default=index + 1) <= index:
                return index
        return len(tail)

    def settle_until(self, end: int) -> None:
        """Settle the volatile words that end by `end`, agreed or not."""
        self._settle(sum(word.end <= end for word in self.volatile))

    def settle_begun(self, position: int) -> None:
        """Settle the volatile words that begin before a position, agreed or not."""
        self._settle(sum(word.start < position for word in self.volatile))

    @property
    def newest(self) -> list[Word]:
        """The unsettled words of the newest window at a decode point."""
        return self._tails[-1] if self._tails else []

    def revise(self, words: list[Word]) -> None:
        """Let `complete` settle these words in place of the newest, unless further ones come."""
        self._revision = words

    def complete(self) -> None:
        """Settle all that the newest window has: it was the last one before a silence."""
        self.volatile = self.newest if self._revision is None else self._revision
        self._settle(len(self.volatile))
        self._tails, self.stable, self._revision = [], [], None

    def forget_disagreement(self) -> None:
        """Let the next hypothesis agree only with those after it: it is in another language."""
        self._tails = []

    def slide(self, num_words: int) -> None:
        """Move the window's start behind this many of the anchors."""
        assert 0 <= num_words <= len(self.anchors), (num_words, len(self.anchors))
        num_context = min(num_words, len(self._context))
        del self._context[:num_context]
        self._num_slid += num_words - num_context

    def cut(self, start: int) -> Transcript:
        """Keep what is settled; return the transcript that goes on with the rest."""
        rest = Transcript(start, self.policy, self.anchors, self._floor)
        rest.volatile, rest._tails, rest.stable = self.volatile, self._tails, self.stable
        self.volatile, self._tails, self.stable = [], [], []
        return rest

    def _settle(self, count: int) -> None:
        self.settled += self.volatile[:count]
        self._before = self._before[count:]
        self.volatile, self.stable = self.volatile[count:], self.stable[count:]
        self._tails = [tail[count:] for tail in self._tails]
