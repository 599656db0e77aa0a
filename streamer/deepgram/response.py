"""A transcribed file as Deepgram's pre-recorded API writes it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.api import Hypothesis, Word
from streamer.deepgram.messages import (
    Alternative,
    ModelInfo,
    ResultMetadata,
    ResultWord,
    Warned,
    plain,
    warn,
)
from streamer.deepgram.options import ListenOptions
from streamer.deepgram.text import confidence_of, write_alternative
from streamer.openai.format import Collector
from streamer.protocol import seconds


@dataclass(frozen=True, slots=True)
class ResponseChannel:
    alternatives: list[Alternative]
    detected_language: str | None = None


@dataclass(frozen=True, slots=True)
class Utterance:
    id: str
    channel: int
    start: float
    end: float
    confidence: float
    transcript: str
    words: list[ResultWord]
    languages: list[str] | None = None


@dataclass(frozen=True, slots=True)
class ResponseResults:
    channels: list[ResponseChannel]
    utterances: list[Utterance] | None = None


@dataclass(frozen=True, slots=True)
class ResponseMetadata:
    transaction_key: str
    request_id: str
    sha256: str  # of the file
    created: str  # ISO 8601
    duration: float
    channels: int
    models: list[str]
    warnings: list[Warned] | None


class Transcript:
    """The text of one channel, collected window by window."""

    def __init__(self) -> None:
        self._collector = Collector()

    def add(self, window: Hypothesis) -> None:
        self._collector.add(window)

    def channel(self, options: ListenOptions) -> ResponseChannel:
        """Write all of it as one alternative."""
        text, language = self._collector.text, self._collector.language
        words = self._collector.words
        alternative = _write(text, words, confidence_of(words, 0.0), language, options)
        named = language if options.detect_language and language else None
        return ResponseChannel([alternative], named)

    def utterances(self, channel: int, options: ListenOptions) -> list[Utterance]:
        """Write each segment by itself."""
        utterances = []
        for number, passage in enumerate(self._collector.passages):
            segment, window = passage.segment, passage.window
            confidence = confidence_of(segment.words, window.avg_logprob)
            written = _write(segment.text, segment.words, confidence, window.language, options)
            utterances.append(
                Utterance(
                    id=f"{channel}-{number}",
                    channel=channel,
                    start=seconds(segment.start),
                    end=seconds(segment.end),
                    confidence=written.confidence,
                    transcript=written.transcript,
                    words=written.words,
                    languages=written.languages,
                )
            )
        return utterances


def write_response(
    transcripts: Sequence[Transcript],
    options: ListenOptions,
    model: ResultMetadata,
    *,
    sha256: str,
    created: str,
    duration: int,
) -> dict[str, object]:
    """Write the answer for a file, one transcript for each of its channels."""
    utterances = None
    if options.utterances:
        listed = [u for i, t in enumerate(transcripts) for u in t.utterances(i, options)]
        utterances = sorted(listed, key=lambda utterance: (utterance.start, utterance.channel))
    metadata = ResponseMetadata(
        transaction_key="deprecated",
        request_id=model.request_id,
        sha256=sha256,
        created=created,
        duration=seconds(duration),
        channels=len(transcripts),
        models=[model.model_uuid],
        warnings=warn(options.ignored),
    )
    results = ResponseResults([t.channel(options) for t in transcripts], utterances)
    return {
        "metadata": {**plain(metadata), "model_info": _describe(model)},
        "results": plain(results),
    }


def _describe(model: ResultMetadata) -> dict[str, object]:
    info: ModelInfo = model.model_info
    return {model.model_uuid: plain(info)}


def _write(
    text: str,
    words: Sequence[Word],
    confidence: float,
    language: str,
    options: ListenOptions,
) -> Alternative:
    return write_alternative(
        text,
        words,
        confidence,
        language,
        punctuate=options.punctuate,
        names_language=options.is_multilingual,
    )
