"""What a session tells its client, in samples. Wire adapters turn these into messages."""

from __future__ import annotations

from dataclasses import dataclass

from engine.api import Word


@dataclass(frozen=True, slots=True)
class SpeechStarted:
    """Someone began to speak; a segment is open."""

    channel: int
    segment: int  # counts up from 0 within a channel
    start: int  # samples from the start of the stream, pre-roll included
    lag: int  # samples received but not yet behind this event


@dataclass(frozen=True, slots=True)
class SpeechEnded:
    """The speaker paused long enough; the segment's Final follows."""

    channel: int
    segment: int
    end: int  # samples; where the speech ended, without the silence
    lag: int


@dataclass(frozen=True, slots=True)
class Partial:
    """The text of the open segment so far. `settled` only ever grows; `volatile` may change."""

    channel: int
    segment: int
    settled: str
    volatile: str
    start: int
    end: int
    language: str
    lag: int


@dataclass(frozen=True, slots=True)
class Final:
    """The text of a closed segment. Never changes, begins with all that was settled.

    A segment that turned out to hold no words still gets its Final, with empty text, if anything
    about it was said before (SpeechStarted or Partial).
    """

    channel: int
    segment: int
    text: str
    start: int
    end: int
    language: str
    language_probability: float
    words: tuple[Word, ...]  # filled where the session asked for word times
    avg_logprob: float
    no_speech_probability: float
    is_endpoint: bool  # False where a long segment was cut and speech goes on
    reason: str | None  # why text was withheld: "no_speech" or "low_probability"
    lag: int


Event = SpeechStarted | SpeechEnded | Partial | Final
