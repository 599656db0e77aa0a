"""One channel of one session: samples and hypotheses go in, windows and events come out.

No I/O and no clock. The segmenter marks the sound; the marks are worked off in order, one window in
flight at a time. What settles, and with it every Final, follows from the marked windows alone;
windows in between only refresh the volatile text. When decoding falls behind a live speaker,
checkpoints are skipped, so overload means fewer and larger updates.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from dataclasses import dataclass

from engine.api import MAX_WINDOW, SAMPLE_RATE, Hypothesis, Samples, StreamOptions, Window, Word
from streamer.agreement import words_of
from streamer.buffer import AudioBuffer
from streamer.edge import best_edge, quietest
from streamer.events import Event, Final, Partial, SpeechEnded, SpeechStarted
from streamer.judgement import doubt
from streamer.segment import Checkpoint, Closed, Mark, Opened, Rested, Resumed, Segmenter
from streamer.settings import Endpointing, SessionSettings
from streamer.speech import SpeechDetector
from streamer.transcript import PATIENCE, Transcript, join

REFRESH = 4_000  # 0.25 s: a volatile refresh is not worth less new sound
SLIDE = 8 * SAMPLE_RATE  # a window longer than this slides to a settled sentence end
SLIDE_HARD = 15 * SAMPLE_RATE  # ... and than this to any settled word's end
SLIDE_FORCED = 25 * SAMPLE_RATE  # ... and than this in any case
FORCED_MARGIN = 24_000  # 1.5 s at a window's end stay open in a forced slide
LATE_S = 1.0  # a checkpoint overdue by more is skipped if another one waits
STALL_S = 1.0  # sound that stays away this much longer than a packet ends the segment
LOOKBACK = 2 * SAMPLE_RATE + SAMPLE_RATE // 2  # kept while nobody speaks: the longest pre-roll


@dataclass(frozen=True, slots=True)
class _Heard:
    """A hypothesis and the words of it that are taken for speech."""

    hypothesis: Hypothesis
    words: list[Word]
    reason: str | None  # why words were withheld


class Session:
    """Transcribes one channel."""

    def __init__(self, settings: SessionSettings, channel: int = 0) -> None:
        self._settings = settings
        self._next_settings = settings  # from the next segment on
        self._channel = channel
        self._buffer = AudioBuffer()
        self._detector = SpeechDetector(settings.vad_threshold)
        self._segmenter = Segmenter(settings)
        self._marks: deque[Mark] = deque()  # not worked off yet; bounded by who feeds the sound
        self._events: list[Event] = []
        self._segment = 0  # number of the open, or else of the next segment
        self._transcript: Transcript | None = None  # of the open segment
        self._window_start = 0  # of the open segment's next window
        self._decoded_end = 0  # of the newest window decoded in the open segment
        self._in_flight: Mark | Window | None = None  # what is being decoded: a mark or a refresh
        self._heard: _Heard | None = None  # the newest marked window's
        self._shown: tuple[str, str] = ("", "")  # settled and volatile text of the last Partial
        self._language: str | None = None  # detected, and kept for the stream
        self._is_ended = False
        # latest arrival of a packet less the position of its start: when a sample would have come
        # at the pace of real time is this plus its position
        self._lead_s = float("-inf")
        self._received_at = 0.0
        self._largest_packet = 0

    # --- what the outside asks -------------------------------------------------------------------

    @property
    def is_finished(self) -> bool:
        """All sound has come, and all Finals are out."""
        return self._is_ended and not self._marks and self._transcript is None

    @property
    def received(self) -> int:
        """Samples received."""
        return self._buffer.end

    @property
    def backlog(self) -> int:
        """Samples received that wait for a decode; 0 while nobody speaks."""
        if self._transcript is None and not self._marks:
            return 0
        return self._buffer.end - max(self._buffer.start, self._decoded_end)

    @property
    def opened_at(self) -> int | None:
        """Where the segment that is open now began; None while there is none."""
        return self._segmenter.opened_at if self._segmenter.is_open else None

    @property
    def num_segments(self) -> int:
        """Segments closed so far."""
        return self._segment

    @property
    def stream_options(self) -> StreamOptions:
        """Options of the engine stream that the next window belongs to.

        While the language is None, every window wants a stream of its own: a language detected in
        half a second of sound must not stick.
        """
        options = self._settings.stream_options
        if options.language is None and self._language is not None:
            return dataclasses.replace(options, language=self._language)
        return options

    @property
    def wake_at(self) -> float | None:
        """When to call `next_window` even if nothing has arrived; None for never."""
        if self._is_ended or not self._segmenter.is_open or self._is_manual:
            return None
        return self._received_at + self._largest_packet / SAMPLE_RATE + STALL_S

    def take_events(self) -> list[Event]:
        """Return the events since the last call, in order."""
        events, self._events = self._events, []
        return events

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
        self._received_at = now
        self._largest_packet = max(self._largest_packet, len(samples), packet)
        self._lead_s = max(self._lead_s, now - self._buffer.end / SAMPLE_RATE)
        self._buffer.append(samples)
        for is_speech in self._detector.detect(samples):
            self._marks += self._segmenter.accept(is_speech)
        self._advance()

    def finalize(self, now: float) -> None:
        """Close the open segment here; its Final follows."""
        self._marks += self._segmenter.close(self._buffer.end)
        self._advance()

    def end(self, now: float) -> None:
        """No more sound comes. May be called again."""
        if not self._is_ended:
            self._is_ended = True
            self._marks += self._segmenter.close(self._buffer.end)
            self._advance()

    def update(self, settings: SessionSettings) -> None:
        """Use these settings from the next segment on; its end and pre-roll from now on."""
        self._next_settings = settings
        self._segmenter.settings = settings
        if self._transcript is None:
            self._settings = settings

    # --- windows and hypotheses ------------------------------------------------------------------

    def next_window(self, now: float) -> Window | None:
        """Return the next window to decode, or None: nothing to do, or one is in flight."""
        if self.wake_at is not None and now >= self.wake_at:
            self._marks += self._segmenter.close(self._buffer.end)
        self._advance()
        if self._in_flight is not None or self._transcript is None:
            return None
        self._skip_checkpoints(now)
        self._advance()
        if not self._marks:
            return self._refresh()
        mark = self._marks[0]
        assert isinstance(mark, Checkpoint | Rested | Closed), mark
        self._in_flight = mark
        is_last = not isinstance(mark, Checkpoint) or mark.is_pause
        return self._window(mark.end, is_final=is_last)

    def window_failed(self, now: float) -> None:
        """Forget the window in flight: its stream was lost. The next one covers its sound."""
        self._in_flight = None

    def receive_hypothesis(self, hypothesis: Hypothesis, now: float) -> None:
        """Take the text of the window in flight."""
        mark, self._in_flight = self._in_flight, None
        transcript = self._transcript
        assert mark is not None and transcript is not None, (mark, hypothesis.start, hypothesis.end)
        heard = _listen(hypothesis)
        self._decoded_end = max(self._decoded_end, hypothesis.end)
        if isinstance(mark, Window):
            transcript.preview(heard.words)
            self._show(hypothesis)
            return
        self._settle_language(hypothesis, heard)
        if self._heard is not None and self._heard.hypothesis.language != hypothesis.language:
            transcript.forget_disagreement()
        self._heard = heard
        if isinstance(mark, Checkpoint):
            self._marks.popleft()
            transcript.agree(
                heard.words,
                mark.end,
                is_pause=mark.is_pause,
                may_settle=self._settings.partials,
            )
            self._slide(mark)
            self._show(hypothesis)
        else:
            transcript.agree(heard.words, hypothesis.end, is_pause=True, may_settle=False)
        self._advance()

    # --- the chain of marks ----------------------------------------------------------------------

    def _advance(self) -> None:
        """Work off the marks that need no decode any more."""
        while self._marks and self._in_flight is None:
            match self._marks[0]:
                case Opened(start):
                    self._open(start)
                case Resumed(start):
                    self._window_start = self._decoded_end = start
                    self._heard = None
                case Closed(end, _, has_speech=False):
                    self._open(self._decoded_end, is_silent=True)
                    assert self._transcript is not None
                    self._finish(self._transcript, end, is_endpoint=True)
                    self._reset(end)
                case Rested(end):
                    if not self._has_heard(end):
                        return
                    self._complete()
                case Closed(end, speech_end):
                    if not self._has_heard(end):
                        return
                    self._complete()
                    self._close(end, speech_end)
                case Checkpoint():
                    return
            self._marks.popleft()
        if self._transcript is None and not self._marks:
            self._buffer.drop_before(self._buffer.end - LOOKBACK)

    def _has_heard(self, end: int) -> bool:
        """Tell whether the newest marked window is all that is to be decoded up to `end`."""
        return self._heard is not None and self._heard.hypothesis.end == end

    def _open(self, start: int, *, is_silent: bool = False) -> None:
        self._settings = self._next_settings
        self._transcript = Transcript(start, PATIENCE[self._settings.delay])
        self._begin(start)
        if not is_silent:
            lag = self._buffer.end - start
            self._events.append(SpeechStarted(self._channel, self._segment, start, lag))

    def _begin(self, start: int) -> None:
        self._window_start = start
        self._decoded_end = max(self._decoded_end, start)
        self._heard = None
        self._shown = ("", "")

    def _complete(self) -> None:
        assert self._transcript is not None
        self._transcript.complete()

    def _close(self, end: int, speech_end: int) -> None:
        transcript = self._transcript
        assert transcript is not None
        lag = self._buffer.end - end
        self._events.append(SpeechEnded(self._channel, self._segment, speech_end, lag))
        self._finish(transcript, end, is_endpoint=True)
        self._reset(end)

    def _reset(self, end: int) -> None:
        self._transcript = self._heard = None
        self._decoded_end = max(self._decoded_end, end)

    def _finish(self, transcript: Transcript, end: int, *, is_endpoint: bool) -> None:
        heard, words = self._heard, tuple(transcript.settled)
        hypothesis = heard.hypothesis if heard else None
        reason = None if words else (heard.reason if heard else None) or "no_speech"
        self._events.append(
            Final(
                channel=self._channel,
                segment=self._segment,
                text=join(words),
                start=transcript.start,
                end=end,
                language=self._language_of(hypothesis),
                language_probability=hypothesis.language_probability if hypothesis else 0.0,
                words=words if self._settings.word_times else (),
                avg_logprob=hypothesis.avg_logprob if hypothesis else 0.0,
                no_speech_probability=hypothesis.no_speech_probability if hypothesis else 1.0,
                is_endpoint=is_endpoint,
                reason=reason,
                lag=self._buffer.end - end,
            )
        )
        self._segment += 1

    # --- windows ---------------------------------------------------------------------------------

    def _window(self, end: int, *, is_final: bool) -> Window:
        start = self._window_start
        assert 0 < end - start <= MAX_WINDOW, (start, end)
        return Window(
            start=start,
            audio=self._buffer.read(start, end),
            prompt=self._settings.prompt,
            is_final=is_final,
            word_times=True,
            deadline=self._lead_s + end / SAMPLE_RATE,
        )

    def _refresh(self) -> Window | None:
        """Look at sound that no mark asks for yet, to show it early."""
        end = min(self._buffer.end, self._window_start + MAX_WINDOW)
        is_worth_it = (
            self._settings.partials
            and self._segmenter.is_speaking
            and end - self._decoded_end >= REFRESH
        )
        if not is_worth_it:
            return None
        window = self._window(end, is_final=False)
        self._in_flight = window
        return window

    def _skip_checkpoints(self, now: float) -> None:
        """Drop checkpoints that are too late to be of use, or were not asked for."""
        while len(self._marks) > 1 or not self._settings.partials:
            mark = self._marks[0] if self._marks else None
            if not isinstance(mark, Checkpoint):
                return
            if self._must_slide(mark):
                return
            is_late = now - self._lead_s - mark.end / SAMPLE_RATE > LATE_S
            is_unasked = not self._settings.partials and (len(self._marks) > 1 or not mark.is_pause)
            if not (is_late or is_unasked):
                return
            self._marks.popleft()

    def _slide(self, mark: Checkpoint) -> None:
        """Move the window's start past settled text; cut the segment if it is too long."""
        transcript = self._transcript
        assert transcript is not None
        is_forced = self._must_slide(mark)
        length = mark.end - self._window_start
        if is_forced:
            transcript.settle_until(mark.end - FORCED_MARGIN)
        if is_forced or length >= SLIDE:
            edge = best_edge(
                transcript.anchors,
                transcript.volatile,
                is_sentence_wanted=not is_forced and length < SLIDE_HARD,
            )
            if edge is not None:
                start = quietest(self._buffer, max(edge.start, self._window_start + 1), edge.end)
                transcript.slide(edge.num_words)
                self._begin_window(start)
            elif is_forced and not transcript.anchors:
                # nothing but sound without words; what may begin a word is kept
                self._begin_window(
                    quietest(self._buffer, mark.end - 2 * FORCED_MARGIN, mark.end - FORCED_MARGIN)
                )
        if self._is_too_long(mark) and self._window_start > transcript.start:
            self._transcript = transcript.cut(self._window_start)
            self._finish(transcript, self._window_start, is_endpoint=False)
            self._shown = ("", "")
            lag = self._buffer.end - self._window_start
            self._events.append(
                SpeechStarted(self._channel, self._segment, self._window_start, lag)
            )

    def _must_slide(self, mark: Checkpoint) -> bool:
        """Tell whether the window or the segment gets too long unless it slides here."""
        assert self._transcript is not None
        is_whole = self._window_start == self._transcript.start
        return mark.end - self._window_start >= SLIDE_FORCED or (
            is_whole and self._is_too_long(mark)
        )

    def _is_too_long(self, mark: Checkpoint) -> bool:
        assert self._transcript is not None
        length = mark.end - self._transcript.start
        return length >= self._settings.max_segment and not self._is_manual

    @property
    def _is_manual(self) -> bool:
        return self._settings.endpointing is Endpointing.MANUAL

    def _begin_window(self, start: int) -> None:
        self._window_start = start
        self._buffer.drop_before(start)

    # --- text ------------------------------------------------------------------------------------

    def _show(self, hypothesis: Hypothesis) -> None:
        """Emit a Partial if it would say something new."""
        transcript = self._transcript
        assert transcript is not None
        if not self._settings.partials:
            return
        settled = join(transcript.settled)
        whole = join([*transcript.settled, *transcript.volatile])
        shown = (settled, whole[len(settled) :])
        if shown == self._shown:
            return
        self._shown = shown
        self._events.append(
            Partial(
                channel=self._channel,
                segment=self._segment,
                settled=shown[0],
                volatile=shown[1],
                start=transcript.start,
                end=hypothesis.end,
                language=self._language_of(hypothesis),
                lag=self._buffer.end - hypothesis.end,
            )
        )

    def _language_of(self, hypothesis: Hypothesis | None) -> str:
        known = self._settings.language or self._language
        return known or (hypothesis.language if hypothesis else "")

    def _settle_language(self, hypothesis: Hypothesis, heard: _Heard) -> None:
        """Keep a detected language once enough was said in it."""
        if self._settings.language is not None or self._language is not None or not heard.words:
            return
        length = hypothesis.end - hypothesis.start
        if hypothesis.language_probability >= 0.8 and length >= 2 * SAMPLE_RATE:
            self._language = hypothesis.language


def _listen(hypothesis: Hypothesis) -> _Heard:
    reason = doubt(hypothesis)
    return _Heard(hypothesis, [] if reason else words_of(hypothesis), reason)
