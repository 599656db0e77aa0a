"""Write the events of one channel, in the language that is known by then."""

from __future__ import annotations

import dataclasses
from collections import deque

from engine.api import Hypothesis, StreamOptions
from streamer.transcription.events import Event, Final, Partial, SpeechEnded, SpeechStarted
from streamer.transcription.language_vote import MIN_LANGUAGE_PROBABILITY, LanguageVote
from streamer.transcription.utterance import Utterance
from streamer.transcription.word import join


class EventWriter:
    """Writes the events of one channel.

    Every `lag` is the samples received beyond what the event is about.
    """

    def __init__(self, events: deque[Event], channel: int) -> None:
        """Begin with the first utterance.

        Args:
            events: takes what is written; whoever reads them removes them.
            channel: stands in every event.
        """
        self._events = events
        self._channel = channel
        self._vote = LanguageVote()
        self._shown = ("", "")  # settled and volatile text of the open utterance, as written last
        self.num_closed = 0  # utterances

    def complete(self, options: StreamOptions) -> StreamOptions:
        """Add the language that was detected, if none was given."""
        if options.language is None:
            return dataclasses.replace(options, language=self._vote.language)
        return options

    def count_language(self, utterance: Utterance) -> None:
        """Let the newest decode point count for the language of the stream, if it has words."""
        decoded = utterance.decoded
        if utterance.settings.language is None and decoded is not None and decoded.words:
            hypothesis = decoded.hypothesis
            length = hypothesis.end - hypothesis.start
            self._vote.count(hypothesis.language, hypothesis.language_probability, length)

    def start(self, utterance: Utterance, lag: int) -> None:
        self._shown = ("", "")
        self._events.append(SpeechStarted(self._channel, utterance.number, utterance.start, lag))

    def end(self, utterance: Utterance, speech_end: int, lag: int) -> None:
        self._events.append(SpeechEnded(self._channel, utterance.number, speech_end, lag))

    def show(self, utterance: Utterance, hypothesis: Hypothesis, lag: int) -> None:
        """Write what is to be shown now, if that is anything new."""
        options = self.complete(utterance.settings.stream_options)
        if not utterance.settings.partials:
            return
        if options.language is None and hypothesis.language_probability < MIN_LANGUAGE_PROBABILITY:
            return
        shown = utterance.shown_text()
        if shown == self._shown:
            return
        self._shown = shown
        settled, volatile = shown
        self._events.append(
            Partial(
                channel=self._channel,
                segment=utterance.number,
                settled=settled,
                volatile=volatile,
                start=utterance.start,
                end=hypothesis.end,
                language=self._language_of(utterance, hypothesis),
                lag=lag,
            )
        )

    def finish(self, utterance: Utterance, end: int, lag: int, *, is_endpoint: bool) -> None:
        """Write all that was settled, at the utterance's end."""
        words = utterance.final_words(end)
        reason = utterance.decoded.reason if utterance.decoded else None
        hypothesis = utterance.decoded.hypothesis if utterance.decoded else None
        self._events.append(
            Final(
                channel=self._channel,
                segment=utterance.number,
                text=join(words),
                start=utterance.start,
                end=end,
                language=self._language_of(utterance, hypothesis),
                language_probability=hypothesis.language_probability if hypothesis else 0.0,
                words=words if utterance.settings.word_times else (),
                avg_logprob=hypothesis.avg_logprob if hypothesis else 0.0,
                no_speech_probability=hypothesis.no_speech_probability if hypothesis else 1.0,
                is_endpoint=is_endpoint,
                reason=None if words else reason or "no_speech",
                lag=lag,
            )
        )
        self.num_closed += 1

    def _language_of(self, utterance: Utterance, hypothesis: Hypothesis | None) -> str:
        known = utterance.settings.language or self._vote.language
        return known or (hypothesis.language if hypothesis else "")
