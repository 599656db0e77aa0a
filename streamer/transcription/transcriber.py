"""One channel of one session: samples and hypotheses go in, windows and events come out.

No I/O and no clock. The segmenter chooses decode points from the audio; they are worked off in
order, with one window in flight at a time. What settles, and with it every Final, follows from the
windows at decode points alone; windows in between only refresh the volatile text. When decoding
falls behind a live speaker, checkpoints are skipped: overload means fewer and larger updates.
"""

from __future__ import annotations

from engine.api import MAX_WINDOW, SAMPLE_RATE, Hypothesis, Samples, StreamOptions, Window
from streamer.transcription.buffer import AudioBuffer
from streamer.transcription.decode_queue import DecodeQueue, InFlightWork
from streamer.transcription.event_writer import EventWriter
from streamer.transcription.events import Event
from streamer.transcription.pace import Pace
from streamer.transcription.second_pass import RecentUtterances, SpokenContext
from streamer.transcription.segmenter import (
    Checkpoint,
    Closed,
    Opened,
    Paused,
    Segmenter,
    SpeechResumed,
    may_be_last,
)
from streamer.transcription.settings import SessionSettings
from streamer.transcription.utterance import CONTEXT, CONTEXT_GAP, Utterance
from streamer.vad.detector import FRAME, SpeechDetector

REFRESH = 4_000  # 0.25 s: a volatile refresh is not worth less new sound
REFRESH_LATENCY_RATIO = 1.5  # ... nor less than this many of the turns that windows take under load
SECOND_PASS_CONTEXT_RATIO = (
    2  # times the context of the first reading, which a second one must have
)
LOOKBACK = 10 * FRAME  # kept while nobody speaks, besides the pre-roll: until an onset is noticed


class Transcriber:
    """Transcribes one channel."""

    def __init__(self, settings: SessionSettings, channel: int = 0) -> None:
        self._settings = settings
        self._next_settings = settings  # from the next segment on
        self._buffer = AudioBuffer()
        self._detector = SpeechDetector(settings.vad_threshold)
        self._segmenter = Segmenter(settings)
        self._writer = EventWriter(channel)
        self._segment: Utterance | None = None  # the open one
        self._last: Utterance | None = None  # closed a moment ago: context for the next
        self._context_floor = -1  # sound and words up to here are no context
        self._decoded_end = 0  # of the newest window decoded
        self._in_flight: InFlightWork | None = None
        self._recent = RecentUtterances()
        self._is_ended = False
        self._pace = Pace()
        self._points = DecodeQueue(self._pace)  # not worked off yet

    # --- what the outside asks -------------------------------------------------------------------

    @property
    def is_finished(self) -> bool:
        """All sound has come, and all Finals are out."""
        return self._is_ended and not self._points and self._segment is None

    @property
    def received(self) -> int:
        """Samples received."""
        return self._buffer.end

    @property
    def backlog(self) -> int:
        """Samples received that wait for a decode; 0 while nobody speaks."""
        if self._segment is None and not self._points:
            return 0
        return self._buffer.end - max(self._buffer.start, self._decoded_end)

    @property
    def opened_at(self) -> int | None:
        """Where the segment that is open now began; None while there is none."""
        return self._segmenter.opened_at if self._segmenter.is_open else None

    @property
    def num_segments(self) -> int:
        """Segments closed so far."""
        return self._writer.num_closed

    @property
    def num_begun(self) -> int:
        """Segments begun so far, those included whose beginning waits to be worked off."""
        return self._writer.num_closed + (self._segment is not None) + self._points.num_opened

    @property
    def stream_options(self) -> StreamOptions:
        """Options of the engine stream that the next window belongs to.

        While the language is None, every window wants a stream of its own: a language detected in
        half a second of sound must not stick.
        """
        return self._writer.complete(self._settings.stream_options)

    @property
    def wake_at(self) -> float | None:
        """When to call `next_window` even if nothing has arrived; None for never."""
        if self._is_ended or not self._segmenter.is_open or self._settings.is_manual:
            return None
        return self._pace.stops_at

    def take_events(self) -> list[Event]:
        """Return the events since the last call, in order."""
        return self._writer.take_events()

    # --- sound and control -----------------------------------------------------------------------

    def receive_audio(self, samples: Samples, now: float, packet: int = 0) -> None:
        """Take the next samples, any number of them.

        Args:
            samples: (T,) float32 in [-1, 1], 16 kHz.
            now: seconds of a monotonic clock.
            packet: samples of the packet that these are a part of, if it was cut.
        """
        assert not self._is_ended, "sound after the end"
        if not len(samples):
            return
        start = self._buffer.end
        self._buffer.append(samples)
        self._pace.receive(start, self._buffer.end, max(packet, len(samples)), now)
        for is_speech in self._detector.detect(samples):
            self._points.add(self._segmenter.accept(is_speech))
        self._advance()

    def finalize(self) -> None:
        """Close the open segment here; its Final follows."""
        self._points.add(self._segmenter.close(self._buffer.end))
        self._advance()

    def forget(self) -> None:
        """Close the open segment, and keep the sound so far out of the next one."""
        self.finalize()
        self._context_floor = self._buffer.end
        self._recent.forget()
        self._segmenter.forget(self._buffer.end)

    def end(self) -> None:
        """No more sound comes. May be called again."""
        if not self._is_ended:
            self._is_ended = True
            self._points.add(self._segmenter.close(self._buffer.end))
            self._advance()

    def update(self, settings: SessionSettings) -> None:
        """Use these settings from the next segment on.

        The pause that ends a segment and the pre-roll hold from now on.
        """
        self._next_settings = settings
        self._segmenter.settings = settings
        if self._segment is None:
            self._settings = settings

    # --- windows and hypotheses ------------------------------------------------------------------

    def next_window(self, now: float) -> Window | None:
        """Return the next window to decode, or None: nothing to do, or one is in flight."""
        if self.wake_at is not None and now >= self.wake_at:
            self._points.add(self._segmenter.close(self._buffer.end))
        self._advance()
        if self._in_flight is not None or self._segment is None:
            return None
        self._points.skip(self._segment, now, has_partials=self._settings.partials)
        self._advance()
        if (again := self._second_pass(now)) is not None:
            return again
        point = self._points.first
        if self._segment is None or point is None:
            return self._refresh(now)
        assert isinstance(point, Checkpoint | Paused | Closed), point
        self._in_flight = point
        self._pace.ask(now)
        return self._window(self._segment, point.end, is_final=may_be_last(point))

    def window_failed(self) -> None:
        """Forget the window in flight: its stream was lost. The next one covers its sound."""
        self._in_flight = None

    @property
    def preempt_at(self) -> float | None:
        """When `preempt` would give up the window in flight; None: as things are, never.

        Under load a window waits for its turn. Who stopped to speak must not wait for two turns:
        a refresh, a late checkpoint, a second reading that is long under way make way for a final.
        """
        if self._segment is None:
            return None
        return self._points.preempt_at(self._in_flight, self._segment)

    def preempt(self, now: float) -> bool:
        """Give up the window in flight if it holds up a text that is to be final.

        Returns:
            Whether it is given up; its hypothesis is not wanted any more.
        """
        at = self.preempt_at
        if at is None or now < at:
            return False
        self._in_flight = None  # `next_window` skips it, if it is late
        return True

    def receive_hypothesis(self, hypothesis: Hypothesis, now: float) -> None:
        """Take the text of the window in flight."""
        point, self._in_flight = self._in_flight, None
        segment = self._segment
        assert point is not None and segment is not None, (point, hypothesis.start, hypothesis.end)
        self._pace.answer(now)
        self._decoded_end = max(self._decoded_end, hypothesis.end)
        match point:
            case Window():
                segment.preview(hypothesis)
                self._writer.show(segment, hypothesis, self._buffer.end - hypothesis.end)
            case SpokenContext():
                segment.accept_second_pass(hypothesis, point)
            case Checkpoint(end, is_pause):
                self._points.drop_first()
                may_settle = self._settings.partials
                segment.hear(hypothesis, is_pause=is_pause, may_settle=may_settle)
                self._writer.count_language(segment)
                segment.slide(end, self._buffer, 0 if self._pace.is_overloaded else CONTEXT)
                if (rest := segment.cut(end, self._buffer)) is not None:
                    self._finish(segment, rest.start, is_endpoint=False)
                    self._recent.forget()
                    self._started(rest)
                    self._segment = segment = rest
                segment.needs_second_pass = (
                    segment.needs_second_pass and not self._pace.is_overloaded
                )
                self._buffer.drop_before(segment.needed_from)
                self._writer.show(segment, hypothesis, self._buffer.end - hypothesis.end)
            case _:
                segment.hear(hypothesis, is_pause=True, may_settle=False)
                self._writer.count_language(segment)
                segment.needs_second_pass = False  # the client waits for this text
        self._advance()

    # --- decode points ---------------------------------------------------------------------------

    def _advance(self) -> None:
        """Work off the points that need no decode any more."""
        while self._points and self._in_flight is None:
            segment = self._segment
            match self._points.first:
                case Opened(start):
                    self._segment = self._open(start)
                    self._started(self._segment)
                case Closed(end, _, has_speech=False):
                    self._finish(self._open(self._decoded_end), end, is_endpoint=True)
                    self._decoded_end = max(self._decoded_end, end)
                case Checkpoint():
                    return
                case SpeechResumed(start):
                    assert segment is not None
                    segment.resume(start, self._buffer)
                    self._decoded_end = max(self._decoded_end, start)
                case Paused(end):
                    assert segment is not None
                    if self._must_decode(segment, end):
                        return
                case Closed(end, speech_end):
                    assert segment is not None
                    if self._must_decode(segment, end):
                        return
                    lag = self._buffer.end - end
                    self._writer.end(segment, speech_end, lag)
                    self._finish(segment, end, is_endpoint=True)
                    if end > self._context_floor:
                        words = segment.transcript.settled
                        self._recent.add(segment.start, end, self._buffer, words)
                    self._last, self._segment = segment, None
            self._points.drop_first()
        if self._segment is None and not self._points:
            self._drop_old_sound()

    def _must_decode(self, segment: Utterance, end: int) -> bool:
        """Tell whether there is something to decode before the segment may end here."""
        if not segment.has_heard(end):
            return True
        return self._has_more_context(segment) or segment.go_on_behind(end)

    def _has_more_context(self, segment: Utterance) -> bool:
        """Tell whether the newest marked window is to be read again, with what was said before."""
        return segment.needs_second_pass and self._recent.length >= max(
            1, SECOND_PASS_CONTEXT_RATIO * segment.context
        )

    def _drop_old_sound(self) -> None:
        """Drop what the next segment will not need, while none is open."""
        keep = self._buffer.end - self._segmenter.settings.pre_roll - LOOKBACK
        self._recent.forget_if_old(keep)
        if self._last is not None and keep - self._last.end > CONTEXT_GAP:
            self._last = None
        if self._last is not None:
            keep = min(keep, self._last.end - CONTEXT)
        self._buffer.drop_before(keep)

    def _open(self, start: int) -> Utterance:
        before = self._settings
        self._settings = self._next_settings
        self._decoded_end = max(self._decoded_end, start)
        self._recent.forget_if_old(start)
        if before.stream_options != self._settings.stream_options:
            self._recent.forget()
        segment = Utterance(self._writer.num_closed, start, self._settings)
        is_context = self._last is not None and self._last.end > self._context_floor
        if is_context and before.stream_options == self._settings.stream_options:
            assert self._last is not None
            segment.follow(self._last, self._buffer, 0 if self._pace.is_overloaded else CONTEXT)
        return segment

    def _started(self, segment: Utterance) -> None:
        self._writer.start(segment, self._buffer.end - segment.start)

    def _finish(self, segment: Utterance, end: int, *, is_endpoint: bool) -> None:
        self._writer.finish(segment, end, self._buffer.end - end, is_endpoint=is_endpoint)

    # --- windows ---------------------------------------------------------------------------------

    def _window(self, segment: Utterance, end: int, *, is_final: bool) -> Window:
        return self._window_of(self._buffer.read(segment.window_start, end), end, is_final)

    def _window_of(self, audio: Samples, end: int, is_final: bool) -> Window:
        assert 0 < len(audio) <= MAX_WINDOW, (len(audio), end)
        return Window(
            start=end - len(audio),
            audio=audio,
            prompt=self._settings.prompt,
            is_final=is_final,
            word_times=True,  # text settles, slides and joins by the times of words
            deadline=self._pace.due_at(end),
        )

    def _refresh(self, now: float) -> Window | None:
        """Look at sound that no point asks for yet, to show it early."""
        segment = self._segment
        if segment is None or not self._settings.partials or not self._segmenter.is_speaking:
            return None
        end = min(self._buffer.end, segment.window_start + MAX_WINDOW)
        if end - self._decoded_end < max(
            REFRESH, REFRESH_LATENCY_RATIO * self._pace.decode_latency_s * SAMPLE_RATE
        ):
            return None
        window = self._window(segment, end, is_final=False)
        self._pace.ask(now)
        self._in_flight = window
        return window

    def _second_pass(self, now: float) -> Window | None:
        """Read a short turn once more, with what was said before, while the silence runs."""
        segment = self._segment
        if segment is None or not self._has_more_context(segment):
            return None
        point = self._points.first
        if isinstance(point, Checkpoint) or (point is None and self._segmenter.is_speaking):
            return None  # the segment does not end here
        if isinstance(point, Paused | Closed) and not segment.has_heard(point.end):
            return None
        context = self._recent.before(segment.start)
        assert context is not None
        segment.needs_second_pass = False
        end = segment.end
        self._pace.ask(now)
        self._in_flight = context
        return self._window_of(context.join(self._buffer, end), end, is_final=True)
