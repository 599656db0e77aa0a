"""WhisperLive's messages: the segments that a client is sent.

Pure. Follows whisper_live/client.py and server.py: times are strings with three decimals, every
update repeats the last completed segments, and clients drop a segment that starts before the end of
the one before it.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Sequence

from engine.api import SAMPLE_RATE, Word
from streamer.protocols.whisperlive.options import Hello
from streamer.transcription import events
from streamer.transcription.word import follow

END_OF_AUDIO = b"END_OF_AUDIO"
# clients keep a transcript only of the back end of this name (client.py, process_segments)
BACKEND = "faster_whisper"
MAX_REPEATED = 100  # completed segments that an update may repeat


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
        """Return the messages for an event."""
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
