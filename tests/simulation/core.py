"""Play a history to the pure core: one `Transcriber`, under a clock that only moves here.

What `LiveSession` and `Channel` do around it is done here without tasks: the sender waits while the
backlog is too long, a window makes way when it is to be preempted, a lost one is asked for again.
"""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass, field

from engine.api import MAX_WINDOW, SAMPLE_RATE, Window
from streamer.session.channel import UNREAD_GRACE_S
from streamer.session.engine_retry import RETRY_S
from streamer.session.live import MAX_BACKLOG
from streamer.transcription.events import Event
from streamer.transcription.transcriber import Transcriber
from tests.simulation.history import Act, Answer, Deed, History
from tests.simulation.properties import Listener, Violation, check_words, require
from tests.simulation.script import Script
from tests.simulation.track import make_audio

MAX_STEPS = 200_000  # of one history; more is a circle
# samples held besides those that wait: a window, and what later windows may reach back to
MAX_HELD = MAX_WINDOW + 15 * SAMPLE_RATE


@dataclass(frozen=True, slots=True)
class Input:
    """What the client sends next."""

    start: int  # samples; of audio
    end: int
    packet: int  # samples of the packet that the audio is a part of
    deed: Deed | None = None


@dataclass(slots=True)
class Told:
    """What came of a history."""

    events: list[tuple[float, Event]] = field(default_factory=list)  # and when, in seconds
    num_windows: int = 0
    cuts: list[int] = field(default_factory=list)  # samples


class Next(enum.Enum):
    """What happens next; the first of those that are due at the same time."""

    INPUT = "input"
    ANSWER = "answer"
    PREEMPT = "preempt"
    RETRY = "retry"  # a window is asked for
    WAKE = "wake"


class CoreRun:
    """Plays one history once."""

    def __init__(self, history: History) -> None:
        self.told = Told()
        self._history = history
        self._script = Script(history)
        self._events: deque[Event] = deque()
        self._transcriber = Transcriber(history.settings, self._events)
        self._audio = make_audio(history.words, history.lead)
        self._inputs = list_inputs(history, len(self._audio))
        self._num_sent = 0  # of the inputs
        self._num_updates = 0
        self._listener = Listener()
        self._now = 0.0
        self._held_until = 0.0  # packets are held up until then
        self._shift_s = 0.0  # how long the sender has paused so far
        self._frozen_until = 0.0  # the process stands still until then
        self._window: Window | None = None  # in flight
        self._answer: Answer | None = None  # ... and how it is answered
        self._language: str | None = None  # ... in a stream of this language
        self._done_at = 0.0
        self._num_lost = 0  # decodes in a row
        self._retry_at: float | None = None

    def run(self) -> Told:
        """Play all of it.

        Raises:
            Violation: a promise is broken.
        """
        num_steps = 0
        self._turn()
        while not self._transcriber.is_finished:
            at, what = self._choose()
            self._now = max(self._now, at)
            self._do(what)
            self._turn()
            num_steps += 1
            if num_steps > MAX_STEPS:
                raise Violation(f"goes round in circles at {self._now:.3f} s: {what}")
        require(self._num_sent == len(self._inputs), "finished before the end")
        require(not self._listener.is_open, "a segment without its Final")
        texts = [final.text for final in self._listener.finals]
        check_words(self._history, texts, self.told.cuts, len(self._audio))
        return self.told

    def _choose(self) -> tuple[float, Next]:
        transcriber = self._transcriber
        times: list[tuple[float, Next]] = []
        if self._num_sent < len(self._inputs) and transcriber.backlog < MAX_BACKLOG:
            times.append((self._arrival(self._inputs[self._num_sent]), Next.INPUT))
        if self._window is not None:
            times.append((self._done_at, Next.ANSWER))
            if (at := transcriber.preempt_at) is not None:
                times.append((at, Next.PREEMPT))
        elif self._retry_at is not None:
            times.append((self._retry_at, Next.RETRY))
        elif self._now < self._frozen_until:
            times.append((self._frozen_until, Next.RETRY))
        elif (at := transcriber.wake_at) is not None:
            times.append((at, Next.WAKE))
        if not times:
            sent = f"{self._num_sent} of {len(self._inputs)} inputs"
            raise Violation(f"stuck at {self._now:.3f} s: {sent}, backlog {transcriber.backlog}")
        floor = max(self._now, self._frozen_until)
        return min(((max(at, floor), what) for at, what in times), key=lambda found: found[0])

    def _arrival(self, item: Input) -> float:
        recorded_s = item.end / SAMPLE_RATE / self._history.speed + self._shift_s
        return max(recorded_s, self._held_until)

    def _do(self, what: Next) -> None:
        match what:
            case Next.INPUT:
                self._send(self._inputs[self._num_sent])
                self._num_sent += 1
                if self._num_sent == len(self._inputs):
                    self._transcriber.end()
            case Next.ANSWER:
                self._take_answer()
            case Next.PREEMPT:
                if self._transcriber.preempt(self._now):
                    self._window = None
            case Next.RETRY:
                self._retry_at = None
            case Next.WAKE:
                pass  # `_turn` asks for a window

    def _send(self, item: Input) -> None:
        transcriber, deed = self._transcriber, item.deed
        if deed is None:
            samples = self._audio[item.start : item.end]
            transcriber.receive_audio(samples, self._now, item.packet)
            return
        match deed.act:
            case Act.FINALIZE:
                self.told.cuts.append(transcriber.received)
                transcriber.finalize()
            case Act.FORGET:
                self.told.cuts.append(transcriber.received)
                transcriber.forget()
            case Act.UPDATE:
                updates = self._history.updates
                transcriber.update(updates[self._num_updates % len(updates)])
                self._num_updates += 1
            case Act.PAUSE:
                self._shift_s += deed.seconds
            case Act.STALL | Act.BREAK:
                self._held_until = self._now + deed.seconds
            case Act.STANDSTILL:
                self._frozen_until = self._now + deed.seconds

    def _take_answer(self) -> None:
        window, answer, self._window = self._window, self._answer, None
        assert window is not None and answer is not None
        if answer.is_lost:
            self._num_lost += 1
            self._retry_at = self._now + RETRY_S * self._num_lost
            self._transcriber.window_failed()
            return
        self._num_lost = 0
        hypothesis = self._script.read(window, self._language)
        self._transcriber.receive_hypothesis(hypothesis, self._now)

    def _note_cut(self) -> None:
        """Note where a segment is closed since audio stays away."""
        wake_at = self._transcriber.wake_at
        if wake_at is None or self._now < wake_at:
            return
        if self._num_sent < len(self._inputs):
            arrived_at = self._arrival(self._inputs[self._num_sent])
            # a session lets sound that has just arrived come in first
            is_away = self._now < arrived_at + UNREAD_GRACE_S
            require(is_away, f"closed at {self._now:.3f} s: audio waits to be taken")
        self.told.cuts.append(self._transcriber.received)

    def _turn(self) -> None:
        """Ask for a window where a session would, and take the events."""
        transcriber = self._transcriber
        if self._window is None and self._retry_at is None and self._now >= self._frozen_until:
            self._note_cut()
            window = transcriber.next_window(self._now)
            if window is not None:
                require(0 < len(window.audio) <= MAX_WINDOW, f"a window of {len(window.audio)}")
                require(window.end <= transcriber.received, f"a window up to {window.end}")
                self._window, self._answer = window, self._script.next_answer()
                self._language = transcriber.stream_options.language
                self._done_at = self._now + self._answer.cost_s
                self.told.num_windows += 1
                require(transcriber.next_window(self._now) is None, "two windows in flight")
        while self._events:
            event = self._events.popleft()
            self.told.events.append((self._now, event))
            self._listener.hear(event, transcriber.received)
        if (held := len(transcriber._buffer) - transcriber.backlog) > MAX_HELD:
            raise Violation(
                f"holds {held} samples besides the backlog, at most {MAX_HELD} expected"
            )


def list_inputs(history: History, length: int) -> list[Input]:
    """Cut the audio into packets, and those into seconds as a session does; deeds in between.

    A deed is done behind the packet that it falls into.
    """
    inputs: list[Input] = []
    deeds = list(history.deeds)
    position, index = 0, 0
    while position < length:
        size = history.packets[index % len(history.packets)]
        end = min(position + size, length)
        for first in range(position, end, SAMPLE_RATE):
            inputs.append(Input(first, min(first + SAMPLE_RATE, end), end - position))
        position, index = end, index + 1
        while deeds and deeds[0].at <= position:
            inputs.append(Input(position, position, 0, deeds.pop(0)))
    return inputs


def run_core(history: History) -> Told:
    """Play a history to the pure core, under `track.listening_by_level`.

    Raises:
        Violation: a promise is broken.
    """
    return CoreRun(history).run()
