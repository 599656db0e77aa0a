"""What one session asks for, in the service's own units. Wire adapters build it from messages."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from engine.api import SAMPLE_RATE, StreamOptions, Task
from streamer.schema import RangeError

RANGES: Mapping[str, tuple[float, float]] = {  # of what a session takes, by field
    "silence_ms": (100, 10_000),
    "pre_roll_ms": (0, 2_000),
    "max_segment_s": (2, 300),
    "vad_threshold": (0, 1),
    "temperature": (0, 1),
}


class Delay(enum.Enum):
    """How eagerly text settles, named as in OpenAI's Realtime API."""

    MINIMAL = "minimal"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    XHIGH = "xhigh"


class Endpointing(enum.Enum):
    """What decides where a segment ends."""

    SPEECH = "speech"  # the speech detector
    MANUAL = "manual"  # the client, with finalize; all audio between two finalizes is one segment


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """The knobs of one session. Checks itself when built: RangeError."""

    language: str | None = None  # ISO 639-1; None detects it, once per stream
    task: Task = Task.TRANSCRIBE
    prompt: str = ""  # text that might have come before: names, spelling, style
    hotwords: tuple[str, ...] = ()  # words to listen for
    word_times: bool = False  # words with times in finals
    partials: bool = True  # events while people still speak
    delay: Delay = Delay.LOW
    endpointing: Endpointing = Endpointing.SPEECH
    silence_ms: int = 750  # pause that ends a segment: the text before it is never revised
    pre_roll_ms: int = 300  # audio kept in front of detected speech
    max_segment_s: float = 30.0  # a longer segment is closed at its best point
    vad_threshold: float = 0.5  # 0 takes everything for speech, 1 next to nothing
    temperature: float = 0.0  # of finals; higher ones follow where the text fails its tests

    def __post_init__(self) -> None:
        for name, (low, high) in RANGES.items():
            if not low <= (value := getattr(self, name)) <= high:
                raise RangeError(name, f"from {low} to {high}", value)

    @property
    def is_manual(self) -> bool:
        """The client decides where segments end."""
        return self.endpointing is Endpointing.MANUAL

    @property
    def silence(self) -> int:
        return self.silence_ms * SAMPLE_RATE // 1000

    @property
    def pre_roll(self) -> int:
        return self.pre_roll_ms * SAMPLE_RATE // 1000

    @property
    def stream_options(self) -> StreamOptions:
        higher = (t for t in StreamOptions().temperatures if t > self.temperature)
        return StreamOptions(
            language=self.language,
            task=self.task,
            hotwords=self.hotwords,
            temperatures=(self.temperature, *higher),
        )

    @property
    def max_segment(self) -> int:
        return int(self.max_segment_s * SAMPLE_RATE)
