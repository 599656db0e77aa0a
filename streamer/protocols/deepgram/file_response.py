"""A transcribed file as Deepgram's pre-recorded API writes it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from engine.api import Word
from streamer.protocols.deepgram.messages import (
    Alternative,
    ResultMetadata,
    ResultWord,
    Warned,
    plain,
    warn,
)
from streamer.protocols.deepgram.options import ListenOptions
from streamer.protocols.deepgram.text import confidence_of, write_alternative
from streamer.recording.collector import Collector
from streamer.wire import seconds


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


def write_response(
    channels: Sequence[Collector],
    options: ListenOptions,
    model: ResultMetadata,
    *,
    sha256: str,
    created: str,
    duration: int,
) -> dict[str, object]:
    """Write the answer for a file: the text of each of its channels, and the utterances of all."""
    utterances = None
    if options.utterances:
        listed = [u for i, channel in enumerate(channels) for u in _utterances(i, channel, options)]
        utterances = sorted(listed, key=lambda utterance: (utterance.start, utterance.channel))
    metadata = ResponseMetadata(
        transaction_key="deprecated",
        request_id=model.request_id,
        sha256=sha256,
        created=created,
        duration=seconds(duration),
        channels=len(channels),
        models=[model.model_uuid],
        warnings=warn(options.ignored),
    )
    results = ResponseResults([_channel(channel, options) for channel in channels], utterances)
    return {
        "metadata": {
            **plain(metadata),
            "model_info": {model.model_uuid: plain(model.model_info)},
        },
        "results": plain(results),
    }


def _channel(channel: Collector, options: ListenOptions) -> ResponseChannel:
    """Write all of a channel as one alternative."""
    words, language = channel.words, channel.language
    alternative = _write(channel.text, words, confidence_of(words, 0.0), language, options)
    named = language if options.detect_language and language else None
    return ResponseChannel([alternative], named)


def _utterances(number: int, channel: Collector, options: ListenOptions) -> Iterator[Utterance]:
    """Write each segment of a channel by itself."""
    for count, passage in enumerate(channel.passages):
        segment, window = passage.segment, passage.window
        confidence = confidence_of(segment.words, window.avg_logprob)
        written = _write(segment.text, segment.words, confidence, window.language, options)
        yield Utterance(
            id=f"{number}-{count}",
            channel=number,
            start=seconds(segment.start),
            end=seconds(segment.end),
            confidence=written.confidence,
            transcript=written.transcript,
            words=written.words,
            languages=written.languages,
        )


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
