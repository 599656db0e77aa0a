"""WhisperLive's messages: the client's first, and the segments that it is sent.

Pure. Follows whisper_live/client.py and server.py: times are strings with three decimals, every
update repeats the last completed segments, and clients drop a segment that starts before the end of
the one before it.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from engine.api import SAMPLE_RATE, Task, Word
from streamer import schema
from streamer.audio.pcm import AudioFormat
from streamer.transcription import events
from streamer.transcription.settings import SessionSettings
from streamer.transcription.word import follow
from streamer.wire import ClientFault, parse_object

END_OF_AUDIO = b"END_OF_AUDIO"
# clients keep a transcript only of the back end of this name (client.py, process_segments)
BACKEND = "faster_whisper"
MAX_REPEATED = 100  # completed segments that an update may repeat
MIN_SILENCE_MS = 100  # SessionSettings.silence_ms


@dataclass(frozen=True, slots=True)
class VadParameters:
    threshold: float | None = None
    min_silence_duration_ms: int | None = None
    speech_pad_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Hello:
    """The client's first message. What it asks for and does not get is told to it."""

    uid: str = ""
    language: str | None = None
    task: Literal["transcribe", "translate"] = "transcribe"
    model: str | None = None  # every name is served by the loaded model
    send_last_n_segments: int = 10
    initial_prompt: str | None = None
    word_timestamps: bool = False
    audio_format: Literal["float32", "int16", "uint8"] = "float32"
    enable_translation: bool = False
    enable_diarization: bool = False
    vad_parameters: VadParameters | None = None
    hotwords: list[str] = field(default_factory=list)

    @property
    def format(self) -> AudioFormat:
        """What the session is fed; uint8 is widened to 16 bits first."""
        encoding = "pcm_f32le" if self.audio_format == "float32" else "pcm_s16le"
        return AudioFormat(encoding, SAMPLE_RATE, 1)

    @property
    def settings(self) -> SessionSettings:
        """What the session is asked for.

        Raises:
            ValueError: a value is out of range.
        """
        vad = self.vad_parameters or VadParameters()
        default = SessionSettings()
        silence_ms, pad_ms = vad.min_silence_duration_ms, vad.speech_pad_ms
        return SessionSettings(
            language=self.language or None,
            task=Task(self.task),
            prompt=self.initial_prompt or "",
            hotwords=tuple(self.hotwords),
            word_times=self.word_timestamps,
            silence_ms=default.silence_ms
            if silence_ms is None
            else max(MIN_SILENCE_MS, silence_ms),
            pre_roll_ms=default.pre_roll_ms if pad_ms is None else pad_ms,
            vad_threshold=default.vad_threshold if vad.threshold is None else vad.threshold,
        )

    @property
    def warnings(self) -> list[str]:
        """What was asked for and is not served."""
        asked = (
            (self.enable_translation, "translation beside the transcript"),
            (self.enable_diarization, "diarization"),
        )
        return [f"{name} is not served here" for is_asked, name in asked if is_asked]


def parse_hello(text: str) -> Hello:
    """Read the client's first message.

    Raises:
        ClientFault: no JSON object, or a field of the wrong type.
    """
    values = parse_object(text)
    hotwords = values.get("hotwords")
    if isinstance(hotwords, str):  # faster-whisper takes one string
        words = (word.strip() for word in hotwords.split(","))
        values["hotwords"] = [word for word in words if word]
    if not isinstance(values.get("uid"), str) and values.get("uid") is not None:
        values["uid"] = str(values["uid"])
    try:
        hello, _ = schema.build(Hello, values)
    except schema.FieldError as error:
        raise ClientFault("invalid_field", str(error), field=error.field) from None
    return hello


class SegmentsWriter:
    """Writes the updates of one connection."""

    def __init__(self, hello: Hello) -> None:
        self._uid = hello.uid
        self._with_words = hello.word_timestamps
        num_repeated = min(max(1, hello.send_last_n_segments), MAX_REPEATED)
        self._completed: deque[Mapping[str, object]] = deque(maxlen=num_repeated)
        self._end = 0  # samples; of the last completed segment
        self._shown = ""  # text of the incomplete segment that the client saw last
        self._language = ""  # as told to the client
        self._text = ""  # of the last completed segment

    def translate(self, event: events.Event) -> list[str]:
        """Give the messages for an event."""
        match event:
            case events.Partial():
                text = follow(self._text, event.settled + event.volatile)
                if not text.strip():
                    return []
                messages = self._name_language(event.language, None)
                return [*messages, self._update(self._open(text, event.start, event.end))]
            case events.Final():
                if not event.text.strip():
                    return []
                return self._complete(event)
        return []

    def message(self, **values: object) -> str:
        """Write any other message; all carry the client's id."""
        return json.dumps({"uid": self._uid, **values}, ensure_ascii=False, allow_nan=False)

    def _complete(self, event: events.Final) -> list[str]:
        messages = self._name_language(event.language, event.language_probability)
        start, end = self._clamp(event.start, event.end)
        text = follow(self._text, event.text)
        if self._shown != text:
            # The reference client adds the incomplete segment that it saw last to its subtitles,
            # unless the last completed one has the same text: so it must have seen this text.
            messages.append(self._update(self._open(text, event.start, event.end)))
        words = _words(event.words, start) if self._with_words else None
        self._completed.append(_segment(text, start, end, completed=True, words=words))
        self._end, self._shown, self._text = end, "", text
        messages.append(self._update(None))
        return messages

    def _open(self, text: str, start: int, end: int) -> Mapping[str, object]:
        self._shown = text
        return _segment(text, *self._clamp(start, end), completed=False, words=None)

    def _update(self, incomplete: Mapping[str, object] | None) -> str:
        segments = [*self._completed, *([incomplete] if incomplete is not None else [])]
        return self.message(segments=segments)

    def _clamp(self, start: int, end: int) -> tuple[int, int]:
        """Move a segment behind the last one, and give it some length."""
        start = max(start, self._end)
        return start, max(end, start + SAMPLE_RATE // 100)

    def _name_language(self, language: str, probability: float | None) -> list[str]:
        if not language or language == self._language:
            return []
        self._language = language
        # a partial does not know it; clients print it and no more
        shown = 1.0 if probability is None else round(probability, 3)
        return [self.message(language=language, language_prob=shown)]


def _segment(
    text: str,
    start: int,
    end: int,
    *,
    completed: bool,
    words: Sequence[Mapping[str, object]] | None,
) -> Mapping[str, object]:
    segment: dict[str, object] = {
        "start": _time(start),
        "end": _time(end),
        "text": text,
        "completed": completed,
    }
    if words is not None:
        segment["words"] = words
    return segment


def _words(words: Sequence[Word], start: int) -> list[Mapping[str, object]]:
    return [
        {
            "word": word.text,
            "start": _time(max(word.start, start)),
            "end": _time(max(word.end, start)),
            "probability": round(word.probability, 3),
        }
        for word in words
    ]


def _time(position: int) -> str:
    return f"{position / SAMPLE_RATE:.3f}"
