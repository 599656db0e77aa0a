"""What is told of one channel: its events, in the language that is known by then."""

from __future__ import annotations

import dataclasses

from engine.api import Hypothesis, StreamOptions
from streamer.transcription.events import Event, SpeechEnded, SpeechStarted
from streamer.transcription.language_vote import GUESS, LanguageVote
from streamer.transcription.utterance import Utterance


class EventWriter:
    """Makes the events of one channel.

    Every `lag` is the samples received beyond what the event tells of.
    """

    def __init__(self, channel: int) -> None:
        self._channel = channel
        self._events: list[Event] = []
        self._vote = LanguageVote()
        self.num_closed = 0  # segments

    def take_events(self) -> list[Event]:
        """Return the events since the last call, in order."""
        events, self._events = self._events, []
        return events

    def complete(self, options: StreamOptions) -> StreamOptions:
        """Add the language that was detected, if none was given."""
        if options.language is None:
            return dataclasses.replace(options, language=self._vote.language)
        return options

    def count_language(self, segment: Utterance) -> None:
        """Let the newest marked window count for the language of the stream, if it has words."""
        heard = segment.heard
        if segment.settings.language is None and heard is not None and heard.words:
            hypothesis = heard.hypothesis
            length = hypothesis.end - hypothesis.start
            self._vote.count(hypothesis.language, hypothesis.language_probability, length)

    def start(self, segment: Utterance, lag: int) -> None:
        self._events.append(SpeechStarted(self._channel, segment.number, segment.start, lag))

    def end(self, segment: Utterance, speech_end: int, lag: int) -> None:
        self._events.append(SpeechEnded(self._channel, segment.number, speech_end, lag))

    def show(self, segment: Utterance, hypothesis: Hypothesis, lag: int) -> None:
        """Tell what is shown now, if that is anything new."""
        options = self.complete(segment.settings.stream_options)
        if not segment.settings.partials:
            return
        if options.language is None and hypothesis.language_probability < GUESS:
            return
        language = self._language_of(segment, hypothesis)
        partial = segment.partial(hypothesis, self._channel, language, lag)
        if partial is not None:
            self._events.append(partial)

    def finish(self, segment: Utterance, end: int, lag: int, *, is_endpoint: bool) -> None:
        """Tell all that was settled, at the segment's end."""
        language = self._language_of(segment, segment.heard.hypothesis if segment.heard else None)
        final = segment.final(end, self._channel, language, lag, is_endpoint=is_endpoint)
        self._events.append(final)
        self.num_closed += 1

    def _language_of(self, segment: Utterance, hypothesis: Hypothesis | None) -> str:
        known = segment.settings.language or self._vote.language
        return known or (hypothesis.language if hypothesis else "")
