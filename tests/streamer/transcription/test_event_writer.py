"""Events of one channel, and the language in them."""

from __future__ import annotations

import dataclasses

from engine.api import SAMPLE_RATE, StreamOptions
from streamer.transcription.event_writer import EventWriter
from streamer.transcription.events import Final, Partial, SpeechEnded, SpeechStarted
from streamer.transcription.settings import SessionSettings
from tests.support.words import heard, hypothesis, said


def test_events_come_in_order_and_once() -> None:
    teller, segment = EventWriter(1), heard("One two.")
    assert segment.heard is not None
    teller.start(segment, 3)
    teller.show(segment, segment.heard.hypothesis, 4)
    teller.show(segment, segment.heard.hypothesis, 4)  # nothing new
    teller.end(segment, 100, 5)
    teller.finish(segment, segment.end, 6, is_endpoint=True)
    events = teller.take_events()
    kinds = [SpeechStarted, Partial, SpeechEnded, Final]
    assert [type(event) for event in events] == kinds
    assert all(event.channel == 1 for event in events)
    assert teller.num_closed == 1 and teller.take_events() == []


def test_a_language_that_is_only_guessed_is_not_shown() -> None:
    teller, segment = EventWriter(0), heard("One two.")
    assert segment.heard is not None
    guess = dataclasses.replace(segment.heard.hypothesis, language_probability=0.4)
    teller.show(segment, guess, 0)
    assert teller.take_events() == []
    given = heard("One two.", SessionSettings(language="en"))
    teller.show(given, guess, 0)
    assert len(teller.take_events()) == 1


def test_the_language_that_was_heard_stays() -> None:
    teller, segment = EventWriter(0), heard("Eins zwei.")
    assert teller.complete(StreamOptions()).language is None
    words = said("Eins zwei.")
    found = dataclasses.replace(hypothesis(words, 10 * SAMPLE_RATE), language="de")
    segment.hear(found, is_pause=True, may_settle=False)
    teller.count_language(segment)
    assert teller.complete(StreamOptions()).language == "de"
    assert teller.complete(StreamOptions(language="en")).language == "en"
