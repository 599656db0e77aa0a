"""One channel whose client finalizes, forgets, updates its settings, or wants no partials."""

from __future__ import annotations

import numpy as np

from engine.api import SAMPLE_RATE
from streamer.transcription.events import Final, Partial
from streamer.transcription.settings import Endpointing, SessionSettings
from tests.support.player import TALK, Player, check, play
from tests.support.timeline import Recogniser, timeline


def test_finalize_closes_here_and_goes_on() -> None:
    player = Player(Recogniser(TALK.words), SessionSettings())
    middle = TALK.words[2].end + 200
    player.play(TALK.samples[:middle], [1600])
    player.transcriber.finalize()
    player.transcriber.finalize()
    player.play(TALK.samples[middle:], [1600])
    player.end()
    check(player.events)
    assert player.finals[0].text == "W0 w1 w2"
    assert player.text == TALK.text


def test_finalize_without_speech_says_nothing() -> None:
    """Noise that came after the last word is not transcribed when the user presses stop."""
    talk = timeline([3], [3.0])
    recogniser = Recogniser(talk.words, invent=" Thank you.")
    player = Player(recogniser, SessionSettings())
    player.play(talk.samples, [1600])
    player.transcriber.finalize()
    player.end()
    assert player.text == talk.text
    assert len(player.finals) == 1


def test_a_manual_segment_is_all_between_two_finalizes() -> None:
    talk = timeline([3, 3], [1.6, 2.5])
    player = Player(Recogniser(talk.words), SessionSettings(endpointing=Endpointing.MANUAL))
    player.play(talk.samples, [1600])
    assert player.finals == []
    player.transcriber.finalize()
    player.wait(player.now + 1.0)
    assert [final.text for final in player.finals] == [talk.text]
    player.feed(np.zeros(8000, np.float32))
    player.transcriber.finalize()
    player.end()
    empty = player.finals[1]
    assert (empty.text, empty.reason) == ("", "no_speech")


def test_without_partials_only_finals_come_and_less_is_decoded() -> None:
    player = play(TALK, options=SessionSettings(partials=False))
    assert player.text == TALK.text
    assert not any(isinstance(event, Partial) for event in player.events)
    assert len(player.recogniser.windows) < len(play(TALK).recogniser.windows) / 3


def test_an_update_counts_from_the_next_segment_on() -> None:
    player = Player(Recogniser(TALK.words), SessionSettings(language="en"))
    middle = TALK.words[2].end
    player.play(TALK.samples[:middle], [1600])
    player.transcriber.update(SessionSettings(language="de", prompt="Hallo."))
    assert player.transcriber.stream_options.language == "en"
    player.transcriber.finalize()
    player.play(TALK.samples[middle:], [1600])
    player.end()
    assert {w.prompt for w in player.recogniser.windows} == {"", "Hallo."}
    assert player.transcriber.stream_options.language == "de"
    assert [final.language for final in player.finals][:2] == ["en", "de"]


def test_forgotten_sound_is_in_no_later_window() -> None:
    talk = timeline([4, 4], [0.4, 1.0])
    player = Player(Recogniser(talk.words), SessionSettings())
    middle = (talk.words[3].start + talk.words[3].end) // 2
    player.play(talk.samples[:middle], [1600])
    player.transcriber.forget()
    player.play(talk.samples[middle:], [1600])
    events = player.end()
    first, *rest = [event for event in events if isinstance(event, Final)]
    assert first.end <= middle
    later = [window for window in player.recogniser.windows if window.end > middle + SAMPLE_RATE]
    assert later and all(window.start >= middle for window in later)
    assert "w2" not in " ".join(final.text for final in rest)
