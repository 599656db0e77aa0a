"""Events of one channel, and the language in them."""

from __future__ import annotations

import dataclasses
from collections import deque

from engine.api import SAMPLE_RATE, StreamOptions
from streamer.transcription.event_writer import EventWriter
from streamer.transcription.events import Event, Final, Partial, SpeechEnded, SpeechStarted
from streamer.transcription.settings import SessionSettings
from tests.support.words import heard, hypothesis, said


def test_events_come_in_order_and_once() -> None:
    events: deque[Event] = deque()
    writer, segment = EventWriter(events, 1), heard("One two.")
    assert segment.decoded is not None
    writer.start(segment, 3)
    writer.show(segment, segment.decoded.hypothesis, 4)
    writer.show(segment, segment.decoded.hypothesis, 4)  # nothing new
    writer.end(segment, 100, 5)
    writer.finish(segment, segment.end, 6, is_endpoint=True)
    kinds = [SpeechStarted, Partial, SpeechEnded, Final]
    assert [type(event) for event in events] == kinds
    assert all(event.channel == 1 for event in events)
    assert writer.num_closed == 1


def test_a_partial_says_what_is_settled_and_up_to_where_it_was_decoded() -> None:
    events: deque[Event] = deque()
    writer, segment = EventWriter(events, 1), heard("One two.")
    assert segment.decoded is not None
    hypothesis = segment.decoded.hypothesis
    writer.show(segment, hypothesis, 5)
    writer.show(segment, hypothesis, 9)
    (partial,) = events
    assert isinstance(partial, Partial)
    assert (partial.settled, partial.volatile) == ("One two.", "")
    assert (partial.channel, partial.language, partial.lag) == (1, "en", 5)
    assert (partial.start, partial.end) == (segment.start, hypothesis.end)


def test_a_language_that_is_only_guessed_is_not_shown() -> None:
    events: deque[Event] = deque()
    writer, segment = EventWriter(events, 0), heard("One two.")
    assert segment.decoded is not None
    guess = dataclasses.replace(segment.decoded.hypothesis, language_probability=0.4)
    writer.show(segment, guess, 0)
    assert not events
    given = heard("One two.", SessionSettings(language="en"))
    writer.show(given, guess, 0)
    assert len(events) == 1


def test_the_language_that_was_heard_stays() -> None:
    events: deque[Event] = deque()
    writer, segment = EventWriter(events, 0), heard("Eins zwei.")
    assert writer.complete(StreamOptions()).language is None
    words = said("Eins zwei.")
    found = dataclasses.replace(hypothesis(words, 10 * SAMPLE_RATE), language="de")
    segment.accept(found, is_pause=True, may_settle=False)
    writer.count_language(segment)
    assert writer.complete(StreamOptions()).language == "de"
    assert writer.complete(StreamOptions(language="en")).language == "en"
