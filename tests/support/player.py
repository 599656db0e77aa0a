"""One channel, played under a clock that the test moves; and what is true of all its events."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from engine.api import SAMPLE_RATE, Window
from streamer.transcription.events import Event, Final, Partial, SpeechEnded, SpeechStarted
from streamer.transcription.settings import SessionSettings
from streamer.transcription.transcriber import Transcriber
from tests.support.timeline import Recogniser, Timeline, timeline

TALK = timeline([5, 8, 3, 30, 2], [0.35, 0.7, 1.5, 0.9, 1.0])


class Player:
    """Plays samples to a transcriber; decoding takes `cost_s` of the simulated time."""

    def __init__(
        self, recogniser: Recogniser, options: SessionSettings, cost_s: float = 0.15
    ) -> None:
        self._untold: deque[Event] = deque()
        self.transcriber = Transcriber(options, self._untold)
        self.recogniser = recogniser
        self.cost_s = cost_s
        self.now = 0.0
        self.told: list[tuple[float, Event]] = []
        self._window: Window | None = None
        self._done_at = 0.0

    def feed(self, samples: np.ndarray, until: float | None = None) -> None:
        """Receive a packet at a time; windows that are done before it are received first."""
        self.wait(self.now if until is None else until)
        self.transcriber.receive_audio(samples, self.now)
        self._turn()

    def wait(self, until: float) -> None:
        while self._window is not None and self._done_at <= until:
            self._finish()
        self.now = max(self.now, until)
        self._turn()

    def play(self, samples: np.ndarray, sizes: Sequence[int], *, is_live: bool = True) -> None:
        """Feed packets of these sizes in turn, live when each is full, or all at once."""
        position, i, began = 0, 0, self.now
        while position < len(samples):
            packet = samples[position : position + sizes[i % len(sizes)]]
            position, i = position + len(packet), i + 1
            self.feed(packet, began + position / SAMPLE_RATE if is_live else None)

    def end(self) -> list[Event]:
        self.transcriber.end()
        self._turn()
        while not self.transcriber.is_finished:
            assert self._window is not None, "nothing to wait for"
            self._finish()
        return self.events

    @property
    def events(self) -> list[Event]:
        return [event for _, event in self.told]

    @property
    def finals(self) -> list[Final]:
        return [event for event in self.events if isinstance(event, Final)]

    @property
    def text(self) -> str:
        return " ".join(final.text for final in self.finals if final.text)

    @property
    def words(self) -> list[str]:
        """All words of the finals that have times."""
        return [word.text.strip() for final in self.finals for word in final.words]

    def _finish(self) -> None:
        window, self._window = self._window, None
        assert window is not None
        self.now = max(self.now, self._done_at)
        self.transcriber.receive_hypothesis(self.recogniser.decode(window), self.now)
        self._turn()

    def _turn(self) -> None:
        if self._window is None:
            self._window = self.transcriber.next_window(self.now)
            self._done_at = self.now + self.cost_s
        self.told += [(self.now, event) for event in self._untold]
        self._untold.clear()


def play(
    talk: Timeline,
    sizes: Sequence[int] = (1600,),
    options: SessionSettings | None = None,
    *,
    cost_s: float = 0.15,
    waver: float = 0.0,
    is_live: bool = True,
) -> Player:
    """Play a timeline to its end."""
    recogniser = Recogniser(talk.words, waver=waver)
    player = Player(recogniser, options or SessionSettings(), cost_s)
    player.play(talk.samples, sizes, is_live=is_live)
    player.end()
    return player


def check(events: Sequence[Event]) -> None:
    """Assert what is true of every transcriber, whatever is said."""
    is_open, number, settled, end = False, -1, "", 0
    for event in events:
        match event:
            case SpeechStarted(segment=segment, start=start):
                assert not is_open and segment == number + 1
                assert start >= end
                is_open, number, settled = True, segment, ""
            case Partial(segment=segment, settled=text, volatile=volatile):
                assert is_open and segment == number
                assert text.startswith(settled)
                assert text == text.strip() and volatile == volatile.rstrip()
                assert "  " not in text + volatile
                settled = text
            case SpeechEnded(segment=segment):
                assert is_open and segment == number
            case Final(segment=segment, text=text):
                assert segment == number and event.start < event.end
                assert text.startswith(settled)
                times = [(word.start, word.end) for word in event.words]
                assert all(a < b for a, b in times)
                assert times == sorted(times)
                is_open, end = False, event.end
    assert not is_open
