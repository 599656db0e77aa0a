"""Cut a channel's audio into segments of speech, and choose where the open one is decoded.

The decode points depend on the audio alone, never on packet sizes, the engine's speed or a clock.
So the windows that make up a Final are the same however the audio arrived.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from engine.api import SAMPLE_RATE
from streamer.transcription.settings import SessionSettings
from streamer.vad.detector import FRAME

ONSET_NUM_FRAMES = 5  # speech has begun when ONSET_NUM_VOICED of these are voiced
ONSET_NUM_VOICED = 3
RESUME_NUM_VOICED = 2  # voiced frames in a row that end a pause; one alone is a click or a breath
PAUSE_LENGTH = 9 * FRAME  # 0.29 s: the sentence may be over, so decode what would be its Final
LONG_PAUSE_LENGTH = SAMPLE_RATE  # 1 s: if the segment is still open, a new window follows
CHECKPOINT_INTERVAL = 9_600  # 0.6 s of audio between two decodes that count for settling


@dataclass(frozen=True, slots=True)
class Opened:
    """Speech has begun: a segment is open, and its first window."""

    start: int  # pre-roll included; never inside an earlier window


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Decode up to here; what this hypothesis shares with the one before may settle."""

    end: int
    is_pause: bool  # in silence: if no speech follows, this is the segment's last window


@dataclass(frozen=True, slots=True)
class Paused:
    """A long pause in a segment that stays open: its window is over."""

    end: int


@dataclass(frozen=True, slots=True)
class SpeechResumed:
    """Speech goes on after a long pause, in a new window of the same segment."""

    start: int


@dataclass(frozen=True, slots=True)
class Closed:
    """The segment is over."""

    end: int  # of its last window; the last pause checkpoint's, if speech ended there
    speech_end: int  # without the silence
    has_speech: bool  # False only for a manual segment in which nobody spoke


DecodePoint = Opened | Checkpoint | Paused | SpeechResumed | Closed


def may_be_last(point: DecodePoint) -> bool:
    """Return whether the window that ends here is the segment's last if nobody speaks on."""
    return isinstance(point, Paused | Closed) or (isinstance(point, Checkpoint) and point.is_pause)


class Segmenter:
    """Turns verdicts on frames into points, for one channel."""

    def __init__(self, settings: SessionSettings) -> None:
        self.settings = settings  # may be replaced at any time
        self.is_open = False  # a segment is
        self.opened_at = 0  # where the open segment began
        self._is_paused = False  # long enough for speech to go on in a new window
        self._recent: deque[bool] = deque(maxlen=ONSET_NUM_FRAMES)  # verdicts outside speech
        self._floor = 0  # end of the last window: audio before it is never used again
        self._voiced_end = 0  # end of the last voiced frame
        self._num_voiced = 0  # voiced frames in a row
        self._next_checkpoint = 0
        self._pause_end: int | None = None  # the decode point of the current pause
        self._end = 0  # end of the last frame

    @property
    def is_speaking(self) -> bool:
        return self.is_open and self._pause_end is None

    def accept(self, is_voiced: bool) -> list[DecodePoint]:
        """Take the next frame's verdict."""
        self._end += FRAME
        if not self.is_open or self._is_paused:
            return self._listen(is_voiced)
        return self._follow(is_voiced)

    def close(self, end: int) -> list[DecodePoint]:
        """Close the open segment: the client asked for it, or no more audio comes.

        Args:
            end: of all audio so far; up to a frame beyond the last verdict.
        """
        if not self.is_open and not self.settings.is_manual:
            self._recent.clear()
            return []
        # without speech too, a manual segment has a Final: the client waits for it
        return [self._close(end)]

    def forget(self, end: int) -> None:
        """Let no later segment reach back before this, as its pre-roll may."""
        self._floor = max(self._floor, end)

    def _listen(self, is_voiced: bool) -> list[DecodePoint]:
        """Wait for speech."""
        self._recent.append(is_voiced)
        if sum(self._recent) >= ONSET_NUM_VOICED:
            onset = self._end - (len(self._recent) - self._recent.index(True)) * FRAME
            start = max(onset - self.settings.pre_roll, self._floor)
            point = SpeechResumed(start) if self._is_paused else Opened(start)
            self.opened_at = self.opened_at if self._is_paused else start
            self.is_open, self._is_paused, self._pause_end = True, False, None
            self._voiced_end, self._next_checkpoint = self._end, onset + CHECKPOINT_INTERVAL
            self._recent.clear()
            return [point]
        if self._is_paused and self._has_ended():
            return [self._close(self._end)]
        return []

    def _follow(self, is_voiced: bool) -> list[DecodePoint]:
        """Wait for silence."""
        self._num_voiced = self._num_voiced + 1 if is_voiced else 0
        if is_voiced and (self._pause_end is None or self._num_voiced >= RESUME_NUM_VOICED):
            self._voiced_end, self._pause_end = self._end, None
        silence = self._end - self._voiced_end
        if self._pause_end is None:
            if silence >= min(PAUSE_LENGTH, self.settings.silence):
                self._pause_end = self._end
                self._next_checkpoint = self._end + CHECKPOINT_INTERVAL
                return [Checkpoint(self._end, is_pause=True)]
            if self._end >= self._next_checkpoint:
                self._next_checkpoint = self._end + CHECKPOINT_INTERVAL
                return [Checkpoint(self._end, is_pause=False)]
        elif self._has_ended():
            return [self._close(self._end)]
        elif silence >= LONG_PAUSE_LENGTH:
            self._is_paused, self._floor = True, self._pause_end
            return [Paused(self._pause_end)]
        return []

    def _has_ended(self) -> bool:
        return not self.settings.is_manual and self._end - self._voiced_end >= self.settings.silence

    def _close(self, end: int) -> Closed:
        has_speech = self.is_open
        window_end = end if self._pause_end is None or not has_speech else self._pause_end
        self.is_open = self._is_paused = False
        self._pause_end = None
        self._num_voiced = 0
        self._recent.clear()
        # audio after a pause was in no window: a word too soft to be noticed may have begun there
        self._floor = window_end
        return Closed(
            window_end, min(self._voiced_end, window_end) if has_speech else end, has_speech
        )
