"""What holds of every history: words arrive once and in order, and what is settled stays."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from streamer.transcription.events import Event, Final, Partial, SpeechEnded, SpeechStarted
from streamer.transcription.word import join
from tests.simulation.history import History
from tests.simulation.script import cut_words, plain


class Violation(AssertionError):
    """Something happened that must not."""


def require(holds: object, message: str) -> None:
    """Raise unless something holds."""
    if not holds:
        raise Violation(message)


class Listener:
    """Follows the events of one channel, and raises at the first that breaks a promise."""

    def __init__(self) -> None:
        self.finals: list[Final] = []
        self.is_open = False  # a segment is
        self._settled = ""

    def hear(self, event: Event, received: int) -> None:
        """Take the next event.

        Args:
            received: samples that the session has by now.
        """
        number = len(self.finals)
        require(event.segment == number, f"expected segment {number}, got {event}")
        require(event.lag >= 0, f"expected a lag of 0 or more, got {event}")
        match event:
            case SpeechStarted(start=start):
                require(not self.is_open, f"{event} while a segment is open")
                last = self.finals[-1].end if self.finals else 0
                require(last <= start <= received, f"{event} starts outside {last}, {received}")
                self.is_open, self._settled = True, ""
            case Partial(settled=settled):
                require(self.is_open, f"{event} while no segment is open")
                require(settled.startswith(self._settled), f"{self._settled!r}, then {event}")
                require(event.end <= received, f"{event} of {received} samples")
                self._settled = settled
            case SpeechEnded():
                require(self.is_open, f"{event} while no segment is open")
            case Final():
                self._finish(event, received)

    def _finish(self, final: Final, received: int) -> None:
        require(final.text.startswith(self._settled), f"{self._settled!r}, then {final}")
        last = self.finals[-1].end if self.finals else 0
        # a manual segment may be closed before any audio came
        shortest = 1 if final.text else 0
        is_placed = last <= final.start <= final.end - shortest and final.end <= received
        require(is_placed, f"out of place: {final}")
        if final.words:
            times = [moment for word in final.words for moment in (word.start, word.end)]
            require(times == sorted(times), f"times out of order: {final}")
            require(final.start <= times[0] and times[-1] <= final.end, f"times outside: {final}")
            require(join(final.words) == final.text, f"words are not the text: {final}")
        self.finals.append(final)
        self.is_open, self._settled = False, ""


def check_words(history: History, texts: Iterable[str], cuts: Sequence[int], length: int) -> None:
    """Hold the text of the Finals against what was said.

    Args:
        texts: of the Finals, in order.
        cuts: samples at which a segment was closed, whatever was being said; a word that such a
            cut goes through may be left out, but not said twice.
        length: samples that were sent in all.
    """
    said: list[str] = []
    may_miss: list[bool] = []
    position = history.lead
    for word in history.words:
        end = position + word.length
        if word.text and position < length:
            said.append(word.text.rstrip("."))
            may_miss.append(end > length or any(position < cut < end for cut in cuts))
        position = end + word.gap
    texts = list(texts)
    found = [word for text in texts for word in plain(text)]
    if not _is_reading(said, may_miss, found):
        kind = "lost or changed words" if len(found) <= len(said) else "words said twice"
        raise Violation("\n".join([kind, *_diff(said, found)]))
    # else a window may begin behind a word's first frame
    if history.settings.pre_roll_ms and all(
        each.silence_ms >= 300 for each in (history.settings, *history.updates)
    ):
        may_be_cut = {word for word, is_cut in zip(said, may_miss, strict=True) if is_cut}
        wrong = [word for text in texts for word in cut_words(text) if word not in may_be_cut]
        require(not wrong, f"words settled that only a window's edge has cut: {wrong}")


def _is_reading(said: Sequence[str], may_miss: Sequence[bool], found: Sequence[str]) -> bool:
    """Tell whether `found` is what was said, apart from some of the words that may be missing."""
    reached = _skip({0}, may_miss)
    for word in found:
        reached = {index + 1 for index in reached if index < len(said) and said[index] == word}
        reached = _skip(reached, may_miss)
    return len(said) in reached


def _skip(reached: set[int], may_miss: Sequence[bool]) -> set[int]:
    """Add the places that are reached by leaving words out."""
    every = set(reached)
    for index in sorted(reached):
        while index < len(may_miss) and may_miss[index]:
            index += 1
            every.add(index)
    return every


def _diff(said: Sequence[str], found: Sequence[str]) -> list[str]:
    matcher = difflib.SequenceMatcher(None, said, found, autojunk=False)
    lines = []
    for kind, first, last, low, high in matcher.get_opcodes():
        if kind != "equal":
            before = " ".join(said[max(0, first - 2) : first])
            lines.append(
                f"  behind {before!r}: said {' '.join(said[first:last])!r}, "
                f"got {' '.join(found[low:high])!r}"
            )
    return lines
