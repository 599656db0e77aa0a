"""Session events as the messages of Deepgram's live API.

Pure: events and positions go in, messages come out. Positions are samples. Final results of one
channel cover the stream without gap or overlap: each starts where the one before it ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.api import SAMPLE_RATE, Word
from streamer.protocols.deepgram.messages import (
    Alternative,
    Message,
    ResultChannel,
    ResultMetadata,
    Results,
    SpeechStarted,
    UtteranceEnd,
)
from streamer.protocols.deepgram.options import ListenOptions
from streamer.protocols.deepgram.text import confidence_of, spread, write_alternative
from streamer.transcription import events
from streamer.wire import seconds


@dataclass(slots=True)
class _Channel:
    """Where one channel's results stand."""

    cursor: int = 0  # samples; the end of the last final result
    # segments that began and have no Final yet
    open_segments: set[int] = field(default_factory=set)
    num_final: int = 0  # segments that had their Final
    finalizing: int | None = None  # number of segments whose Finals answer a Finalize
    # end of the last word that no UtteranceEnd has reported, in samples
    last_word_end: int | None = None
    has_results: bool = False


class ResultsWriter:
    """Writes the messages of one connection."""

    def __init__(self, options: ListenOptions, metadata: ResultMetadata, num_channels: int) -> None:
        self._options = options
        self._metadata = metadata
        self._channels = [_Channel() for _ in range(num_channels)]

    def translate(self, event: events.Event) -> list[Message]:
        """Return the messages for an event; none for what the client did not ask for."""
        state = self._channels[event.channel]
        match event:
            case events.SpeechStarted():
                messages = self._end_utterance(event.channel, event.start)
                state.open_segments.add(event.segment)
                if self._options.vad_events:
                    messages.append(SpeechStarted(self._index(event.channel), seconds(event.start)))
                return messages
            case events.Partial():
                if not self._options.interim_results:
                    return []
                return [self._interim(event)]
            case events.Final():
                return [self._final(event)]
        return []

    def advance(self, position: int) -> list[Message]:
        """Report utterances that ended, with all audio up to `position` received."""
        messages: list[Message] = []
        for channel, state in enumerate(self._channels):
            if not state.open_segments:
                messages += self._end_utterance(channel, position)
        return messages

    def finalize(self, channel: int, num_begun: int, position: int) -> list[Message]:
        """Note a Finalize of a channel; one with nothing to flush is answered at once.

        Args:
            num_begun: segments of the channel that began before it.
        """
        state = self._channels[channel]
        if num_begun > state.num_final:
            state.finalizing = num_begun
            return []
        return [self._empty(channel, position, from_finalize=True)]

    def close(self, position: int) -> list[Message]:
        """Cover what is left of the stream, now that every Final is out."""
        messages: list[Message] = []
        for index, state in enumerate(self._channels):
            if position > state.cursor or not state.has_results:
                messages.append(self._empty(index, position, from_finalize=False))
        return messages

    def _end_utterance(self, channel: int, position: int) -> list[Message]:
        state, gap_ms = self._channels[channel], self._options.utterance_end_ms
        if gap_ms is None or state.last_word_end is None:
            return []
        if position - state.last_word_end < gap_ms * SAMPLE_RATE // 1000:
            return []
        last_word_end, state.last_word_end = state.last_word_end, None
        return [UtteranceEnd(self._index(channel), seconds(last_word_end))]

    def _interim(self, event: events.Partial) -> Results:
        words = spread(event.settled + event.volatile, event.start, event.end)
        num_settled = len(event.settled.split())
        # no probability is known before the Final: what is settled counts as sure
        confidence = (num_settled + 0.5 * max(0, len(words) - num_settled)) / max(1, len(words))
        return self._result(
            channel=event.channel,
            end=event.end,
            alternative=self._alternative(
                event.settled + event.volatile, words, confidence, event.language
            ),
        )

    def _final(self, event: events.Final) -> Results:
        state = self._channels[event.channel]
        state.open_segments.discard(event.segment)
        state.num_final = event.segment + 1
        from_finalize = state.finalizing is not None and state.num_final >= state.finalizing
        if from_finalize:
            state.finalizing = None
        words = event.words or tuple(spread(event.text, event.start, event.end))
        if event.text.strip():
            state.last_word_end = words[-1].end if words else event.end
        result = self._result(
            channel=event.channel,
            end=event.end,
            alternative=self._alternative(
                event.text, words, confidence_of(event.words, event.avg_logprob), event.language
            ),
            is_final=True,
            speech_final=event.is_endpoint and self._options.has_endpointing,
            from_finalize=from_finalize,
        )
        state.cursor = max(state.cursor, event.end)
        state.has_results = True
        return result

    def _empty(self, channel: int, position: int, *, from_finalize: bool) -> Results:
        result = self._result(
            channel=channel,
            end=position,
            alternative=Alternative("", 0.0, []),
            is_final=True,
            from_finalize=from_finalize,
        )
        state = self._channels[channel]
        state.cursor = max(state.cursor, position)
        state.has_results = True
        return result

    def _alternative(
        self, text: str, words: Sequence[Word], confidence: float, language: str
    ) -> Alternative:
        return write_alternative(
            text,
            words,
            confidence,
            language,
            punctuate=self._options.punctuate,
            names_language=self._options.is_multilingual,
        )

    def _result(
        self,
        *,
        channel: int,
        end: int,
        alternative: Alternative,
        is_final: bool = False,
        speech_final: bool = False,
        from_finalize: bool = False,
    ) -> Results:
        cursor = self._channels[channel].cursor
        return Results(
            channel_index=self._index(channel),
            start=seconds(cursor),
            duration=round(seconds(max(end, cursor)) - seconds(cursor), 3),
            is_final=is_final,
            speech_final=speech_final,
            from_finalize=from_finalize,
            channel=ResultChannel([alternative]),
            metadata=self._metadata,
        )

    def _index(self, channel: int) -> list[int]:
        return [channel, len(self._channels)]
