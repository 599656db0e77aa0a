"""Transcripts as OpenAI's transcription endpoints write them: JSON, text, subtitles, events."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from engine.api import SAMPLE_RATE, Word
from streamer.protocols.language_names import english_name
from streamer.recording.collector import Collector, Passage
from streamer.wire import seconds

MEL_FRAME_LENGTH = SAMPLE_RATE // 100  # samples of a mel frame, the unit of `seek`
AUDIO_TOKEN_LENGTH = SAMPLE_RATE // 50  # samples of an encoder position, the unit of audio tokens
MIN_CUE_LENGTH = SAMPLE_RATE // 10  # 0.1 s: players drop cues that are over as soon as they begin


@dataclass(frozen=True, slots=True)
class Cue:
    """One subtitle; times in samples."""

    start: int
    end: int
    text: str


def write_json(collector: Collector, duration: int, *, has_logprobs: bool) -> dict[str, object]:
    body: dict[str, object] = {"text": collector.text, "usage": write_duration(duration)}
    if has_logprobs:
        body["logprobs"] = write_logprobs(collector.words)
    return body


def write_verbose(
    collector: Collector, duration: int, task: str, *, has_segments: bool, has_words: bool
) -> dict[str, object]:
    """Write `verbose_json`; a translation is said to be English, as it is."""
    language = "en" if task == "translate" else collector.language
    body: dict[str, object] = {
        "task": task,
        "language": english_name(language),
        "duration": seconds(duration),
        "text": collector.text,
    }
    if has_segments:
        body["segments"] = [
            _write_segment(number, passage) for number, passage in enumerate(collector.passages)
        ]
    if has_words:
        body["words"] = [
            {"word": word.text.strip(), "start": seconds(word.start), "end": seconds(word.end)}
            for word in collector.words
            if word.text.strip()
        ]
    body["usage"] = write_duration(duration)
    return body


def write_text(collector: Collector) -> str:
    return collector.text + "\n"


def write_srt(passages: Sequence[Passage]) -> str:
    return "\n".join(
        f"{number}\n{_clock(cue.start, ',')} --> {_clock(cue.end, ',')}\n{cue.text}\n"
        for number, cue in enumerate(_cues(passages), 1)
    )


def write_vtt(passages: Sequence[Passage]) -> str:
    cues = (
        f"{_clock(cue.start, '.')} --> {_clock(cue.end, '.')}\n"
        # what looks like markup or an arrow would end the cue
        f"{cue.text.replace('&', '&amp;').replace('<', '&lt;').replace('>', '&gt;')}\n"
        for cue in _cues(passages)
    )
    return "\n".join(["WEBVTT\n", *cues])


def write_delta(delta: str) -> bytes:
    """Write a server-sent event with text that is new."""
    return write_event({"type": "transcript.text.delta", "delta": delta})


def write_done(collector: Collector, duration: int, *, has_logprobs: bool) -> bytes:
    """Write the last server-sent event, with the whole text."""
    audio_tokens = math.ceil(duration / AUDIO_TOKEN_LENGTH)
    event: dict[str, object] = {"type": "transcript.text.done", "text": collector.text}
    if has_logprobs:
        event["logprobs"] = write_logprobs(collector.words)
    event["usage"] = {
        "type": "tokens",
        "input_tokens": audio_tokens,
        "input_token_details": {"audio_tokens": audio_tokens, "text_tokens": 0},
        "output_tokens": collector.num_tokens,
        "total_tokens": audio_tokens + collector.num_tokens,
    }
    return write_event(event)


def write_event(event: Mapping[str, object]) -> bytes:
    return b"data: " + encode(event) + b"\n\n"


def write_duration(duration: int) -> dict[str, object]:
    return {"type": "duration", "seconds": seconds(duration)}


def write_logprobs(words: Iterable[Word]) -> list[dict[str, object]]:
    """Write log-probabilities; an entry is a word, where OpenAI's is a token."""
    return [
        {
            "token": word.text,
            "logprob": round(math.log(max(word.probability, 1e-9)), 4),
            "bytes": list(word.text.encode()),
        }
        for word in words
    ]


def encode(value: object) -> bytes:
    """Encode as strict JSON: a number that is not finite would be our bug."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _write_segment(number: int, passage: Passage) -> dict[str, object]:
    segment, window = passage.segment, passage.window
    return {
        "id": number,
        "seek": window.start // MEL_FRAME_LENGTH,
        "start": seconds(segment.start),
        "end": seconds(segment.end),
        "text": segment.text,
        "tokens": list(segment.tokens),
        "temperature": window.temperature,
        "avg_logprob": _finite(window.avg_logprob),
        "compression_ratio": _finite(window.compression_ratio),
        "no_speech_prob": _finite(window.no_speech_probability),
    }


def _cues(passages: Iterable[Passage]) -> Iterator[Cue]:
    """Return cues that last long enough to be seen, one after the other."""
    end = 0
    for passage in passages:
        start = max(end, passage.segment.start)
        end = max(passage.segment.end, start + MIN_CUE_LENGTH)
        yield Cue(start, end, passage.segment.text.strip())


def _finite(value: float) -> float:
    return float(value) if math.isfinite(value) else 0.0


def _clock(position: int, point: str) -> str:
    ms = position * 1000 // SAMPLE_RATE
    return f"{ms // 3_600_000:02}:{ms // 60_000 % 60:02}:{ms // 1000 % 60:02}{point}{ms % 1000:03}"
