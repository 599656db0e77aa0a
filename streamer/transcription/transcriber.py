"""One channel of one session: samples and hypotheses go in, windows and events come out.

No I/O and no clock. The segmenter chooses decode points from the audio; they are decoded in order,
with one window in flight at a time. What settles, and with it every Final, follows from the
windows at decode points alone; windows in between only refresh the volatile text. When decoding
falls behind a live speaker, checkpoints are skipped: overload means fewer and larger updates.
"""

from __future__ import annotations

from collections import deque

from engine.api import MAX_WINDOW, SAMPLE_RATE, Hypothesis, Samples, StreamOptions, Window
from streamer.transcription.buffer import AudioBuffer
from streamer.transcription.decode_queue import DecodeQueue, InFlightWork
from streamer.transcription.event_writer import EventWriter
from streamer.transcription.events import Event
from streamer.transcription.history import History
from streamer.transcription.pace import Pace
from streamer.transcription.second_pass import SecondPass, SpokenContext
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
from streamer.transcription.utterance import CONTEXT_LENGTH, MAX_CONTEXT_GAP, Utterance
from streamer.vad.detector import FRAME, SpeechDetector

REFRESH_MIN_LENGTH = 4_000  # 0.25 s of new audio, for less of which no refresh is decoded
REFRESH_LATENCY_RATIO = 1.5  # least new audio of a refresh over the time that windows take
ONSET_LOOKBACK = 10 * FRAME  # of audio kept, besides the pre-roll, until an onset is noticed


class Transcriber:
    """Transcribes one channel."""

    def __init__(self, settings: SessionSettings, events: deque[Event], channel: int = 0) -> None:
        """Begin without audio.

        Args:
            settings: until `update`.
            events: takes what comes out, in order; whoever reads the events removes them.
            channel: stands in every event.
        """
        self._settings = settings
        self._next_settings = settings  # from the next utterance on
        self._buffer = AudioBuffer()
        self._detector = SpeechDetector(settings.vad_threshold)
        self._segmenter = Segmenter(settings)
        self._writer = EventWriter(events, channel)
        self._utterance: Utterance | None = None  # the open one
        self._history = History()  # before it
        self._decoded_end = 0  # of the newest window decoded
        self._in_flight: InFlightWork | None = None
        self._second_pass = SecondPass(self._history.recent)
        self._is_ended = False
        self._pace = Pace()
        self._points = DecodeQueue(self._pace)  # those to come

    # --- state -----------------------------------------------------------------------------------

    @property
    def is_finished(self) -> bool:
        """All audio has come, and all Finals are out."""
        return self._is_ended and not self._points and self._utterance is None

    @property
    def received(self) -> int:
        """Samples received."""
        return self._buffer.end

    @property
    def backlog(self) -> int:
        """Samples received that wait for a decode; quiet waits for none."""
        if not self._points and not self._segmenter.is_speaking:
            return 0
        return self._buffer.end - max(self._buffer.start, self._decoded_end)

    @property
    def opened_at(self) -> int | None:
        """Where the utterance that is open now began; None while there is none."""
        return self._segmenter.opened_at if self._segmenter.is_open else None

    @property
    def num_segments(self) -> int:
        """Utterances closed so far."""
        return self._writer.num_closed

    @property
    def num_begun(self) -> int:
        """Utterances begun so far, those included whose beginning waits in the queue."""
        return self._writer.num_closed + (self._utterance is not None) + self._points.num_opened

    @property
    def stream_options(self) -> StreamOptions:
        """Options of the engine stream that the next window belongs to.

        While the language is None, every window wants a stream of its own: a language detected in
        half a second of audio must not stick.
        """
        return self._writer.complete(self._settings.stream_options)

    @property
    def wake_at(self) -> float | None:
        """When to call `next_window` even if nothing has arrived; None for never."""
        if self._is_ended or not self._segmenter.is_open or self._settings.is_manual:
            return None
        # while audio waits for its decode, its sender may be waiting, too
        return None if self._points else self._pace.stops_at

    # --- audio and control -----------------------------------------------------------------------

    def receive_audio(self, samples: Samples, now: float, packet: int = 0) -> None:
        """Take the next samples, any number of them.

        Args:
            samples: (T,) float32 in [-1, 1], 16 kHz.
            now: seconds of a monotonic clock.
            packet: samples of the packet that these are a part of, if it was cut.
        """
        assert not self._is_ended, "audio after the end"
        if not len(samples):
            return
        start = self._buffer.end
        self._buffer.append(samples)
        self._pace.receive(start, self._buffer.end, max(packet, len(samples)), now)
        for is_speech in self._detector.detect(samples):
            self._points.add(self._segmenter.accept(is_speech))
        self._advance()

    def finalize(self) -> None:
        """Close the open utterance here; its Final follows."""
        self._points.add(self._segmenter.close(self._buffer.end))
        self._advance()

    def forget(self) -> None:
        """Close the open utterance, and keep the audio so far out of the next one."""
        self.finalize()
        self._history.forget_before(self._buffer.end)
        self._segmenter.forget(self._buffer.end)

    def end(self) -> None:
        """Note that no more audio comes. May be called again."""
        if not self._is_ended:
            self._is_ended = True
            self.finalize()

    def update(self, settings: SessionSettings) -> None:
        """Use these settings from the next utterance on.

        The pause that ends an utterance and the pre-roll hold from now on.
        """
        self._next_settings = settings
        self._segmenter.settings = settings
        if self._utterance is None:
            self._settings = settings

    # --- windows and hypotheses ------------------------------------------------------------------

    def next_window(self, now: float) -> Window | None:
        """Return the next window to decode, or None: nothing to do, or one is in flight."""
        if self.wake_at is not None and now >= self.wake_at:
            self._points.add(self._segmenter.close(self._buffer.end))
        self._advance()
        if self._in_flight is not None or self._utterance is None:
            return None
        self._points.skip(self._utterance, now, has_partials=self._settings.partials)
        self._advance()
        utterance, point = self._utterance, self._points.first
        is_speaking = self._segmenter.is_speaking
        if utterance is None:
            return None
        if self._second_pass.is_worthwhile(utterance) and self._points.may_end(
            utterance, is_speaking=is_speaking
        ):
            context, end = self._second_pass.start(utterance), utterance.end
            return self._window(context.join(self._buffer, end), end, now, context, is_final=True)
        if point is not None:
            assert isinstance(point, Checkpoint | Paused | Closed), point
            audio = self._buffer.read(utterance.window_start, point.end)
            return self._window(audio, point.end, now, point, is_final=may_be_last(point))
        # no decode point yet: refresh what is shown
        end = min(self._buffer.end, utterance.window_start + MAX_WINDOW)
        if not is_speaking or not self._settings.partials or not self._is_refresh_due(end):
            return None
        return self._window(self._buffer.read(utterance.window_start, end), end, now)

    def _is_refresh_due(self, end: int) -> bool:
        latency = self._pace.decode_latency_s * SAMPLE_RATE
        return end - self._decoded_end >= max(REFRESH_MIN_LENGTH, REFRESH_LATENCY_RATIO * latency)

    def _window(
        self,
        audio: Samples,
        end: int,
        now: float,
        work: InFlightWork | None = None,
        *,
        is_final: bool = False,
    ) -> Window:
        """Return a window that is in flight from now on; without `work`, it is a refresh."""
        assert 0 < len(audio) <= MAX_WINDOW, (len(audio), end)
        window = Window(
            start=end - len(audio),
            audio=audio,
            prompt=self._settings.prompt,
            is_final=is_final,
            word_times=True,  # text settles, slides and joins by the times of words
            deadline=self._pace.due_at(end),
        )
        self._pace.ask(now)
        self._in_flight = window if work is None else work
        return window

    def window_failed(self) -> None:
        """Forget the window in flight: its stream was lost. The next one covers its audio."""
        self._in_flight = None

    @property
    def preempt_at(self) -> float | None:
        """When `preempt` would give up the window in flight; None: as things are, never.

        Under load a window waits for its turn, and a speaker who has stopped must not wait for two
        turns: a refresh, a late checkpoint and a second pass that takes long give way to a final.
        """
        if self._utterance is None:
            return None
        return self._points.preempt_at(self._in_flight, self._utterance)

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
        work, self._in_flight = self._in_flight, None
        utterance = self._utterance
        assert work is not None and utterance is not None, (work, hypothesis.start, hypothesis.end)
        self._pace.answer(now)
        self._decoded_end = max(self._decoded_end, hypothesis.end)
        match work:
            case Window():
                utterance.preview(hypothesis)
                self._writer.show(utterance, hypothesis, self._buffer.end - hypothesis.end)
            case SpokenContext():
                self._second_pass.accept(hypothesis, work, utterance)
            case Checkpoint():
                self._points.drop_first()
                self._accept_checkpoint(utterance, work, hypothesis)
            case _:
                utterance.accept(hypothesis, is_pause=True, may_settle=False)
                self._writer.count_language(utterance)
                self._second_pass.cancel()  # the client waits for this text
        self._advance()

    def _accept_checkpoint(
        self, utterance: Utterance, point: Checkpoint, hypothesis: Hypothesis
    ) -> None:
        words = utterance.accept(
            hypothesis, is_pause=point.is_pause, may_settle=self._settings.partials
        )
        self._second_pass.consider(words, point.end - utterance.start, is_pause=point.is_pause)
        if self._pace.is_overloaded:
            self._second_pass.cancel()
        self._writer.count_language(utterance)
        rest = utterance.move_on(point.end, self._buffer, self._context)
        if rest is not None:
            self._finish(utterance, rest.start, is_endpoint=False)
            self._second_pass.cancel()
            self._history.recent.forget()
            self._start(rest)
            utterance = rest
        self._buffer.drop_before(self._history.needed_during(utterance))
        self._writer.show(utterance, hypothesis, self._buffer.end - hypothesis.end)

    @property
    def _context(self) -> int:
        """Samples of settled audio that the next window is to keep; under load, none."""
        return 0 if self._pace.is_overloaded else CONTEXT_LENGTH

    # --- decode points ---------------------------------------------------------------------------

    def _advance(self) -> None:
        """Pass the decode points that need no decode any more."""
        while self._points and self._in_flight is None:
            utterance = self._utterance
            match self._points.first:
                case Opened(start):
                    utterance = self._open(start)
                    self._start(utterance)
                    self._buffer.drop_before(self._history.needed_during(utterance))
                case Closed(end, _, has_speech=False):
                    self._finish(self._open(self._decoded_end), end, is_endpoint=True)
                    self._decoded_end = max(self._decoded_end, end)
                case Checkpoint():
                    return
                case SpeechResumed(start):
                    assert utterance is not None
                    utterance.resume(start, self._buffer)
                    self._buffer.drop_before(self._history.needed_during(utterance))
                    self._decoded_end = max(self._decoded_end, start)
                case Paused(end):
                    assert utterance is not None
                    if self._must_decode(utterance, end):
                        return
                case Closed(end, speech_end):
                    assert utterance is not None
                    if self._must_decode(utterance, end):
                        return
                    self._writer.end(utterance, speech_end, self._buffer.end - end)
                    self._finish(utterance, end, is_endpoint=True)
                    self._history.add(utterance, end, self._buffer)
                    self._utterance = None
            self._points.drop_first()
        if not self._points and self._in_flight is None and not self._segmenter.is_speaking:
            self._drop_old_audio()

    def _drop_old_audio(self) -> None:
        """Drop what no later speech needs, while nobody speaks."""
        next_start = self._buffer.end - self._segmenter.settings.pre_roll - ONSET_LOOKBACK
        utterance = self._utterance
        if utterance is None:
            self._buffer.drop_before(self._history.needed_from(next_start))
        elif next_start - utterance.end > MAX_CONTEXT_GAP:
            # an utterance that goes on after this does so without context
            if not self._second_pass.is_worthwhile(utterance):
                self._buffer.drop_before(next_start)

    def _must_decode(self, utterance: Utterance, end: int) -> bool:
        """Settle what was decoded; return whether more is to be before the utterance ends here."""
        if not utterance.has_decoded(end):
            return True
        return self._second_pass.is_worthwhile(utterance) or utterance.complete(end)

    def _open(self, start: int) -> Utterance:
        before, self._settings = self._settings, self._next_settings
        has_same_options = before.stream_options == self._settings.stream_options
        self._decoded_end = max(self._decoded_end, start)
        self._second_pass.cancel()
        utterance = Utterance(self._writer.num_closed, start, self._settings)
        self._history.precede(
            utterance, self._buffer, self._context, has_same_options=has_same_options
        )
        return utterance

    def _start(self, utterance: Utterance) -> None:
        self._utterance = utterance
        self._writer.start(utterance, self._buffer.end - utterance.start)

    def _finish(self, utterance: Utterance, end: int, *, is_endpoint: bool) -> None:
        self._writer.finish(utterance, end, self._buffer.end - end, is_endpoint=is_endpoint)
