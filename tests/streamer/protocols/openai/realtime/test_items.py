from __future__ import annotations

import itertools
from typing import Any

from engine.api import ModelInfo, Word
from streamer.protocols.openai.realtime.items import ItemWriter
from streamer.protocols.openai.realtime.options import RealtimeConfig
from streamer.transcription.events import Final, Partial, SpeechEnded, SpeechStarted

INFO = ModelInfo("base", ("en", "de"), "cpu", "float32")
S = 16_000
DELTA = "conversation.item.input_audio_transcription.delta"
COMPLETED = "conversation.item.input_audio_transcription.completed"


def writer(*, manual: bool = False, model: str = "whisper-1", offset: int = 0) -> ItemWriter:
    source: dict[str, Any] = {"transcription": {"model": model}}
    if manual:
        source["turn_detection"] = None
    numbers = itertools.count(1)
    items = ItemWriter(lambda: f"item{next(numbers)}")
    items.begin(RealtimeConfig(INFO).update({"audio": {"input": source}}), offset)
    return items


def partial(settled: str, segment: int = 0) -> Partial:
    return Partial(0, segment, settled, " more", 0, S, "en", 0)


def final(text: str, *, segment: int = 0, start: int = 0, is_endpoint: bool = True) -> Final:
    words = tuple(Word(f" {word}", start, start + 1, 0.5) for word in text.split())
    return Final(
        0, segment, text, start, start + S, "en", 1.0, words, -0.1, 0.0, is_endpoint, None, 0
    )


def kinds(messages: list[dict[str, Any]]) -> list[str]:
    return [message["type"].rpartition(".")[2] for message in messages]


def test_a_turn_is_told_in_the_vendors_order() -> None:
    items = writer(offset=S)
    messages = items.translate(SpeechStarted(0, 0, S // 2, 0))
    messages += items.translate(partial("Hello"))
    messages += items.translate(SpeechEnded(0, 0, 2 * S, 0))
    messages += items.translate(final("Hello there."))
    assert kinds(messages) == [
        "speech_started",
        "speech_stopped",
        "committed",
        "added",
        "done",
        "delta",
        "completed",
    ]
    assert messages[0]["audio_start_ms"] == 1500
    assert messages[1]["audio_end_ms"] == 3500  # with the silence, and what came before
    assert {m.get("item_id", "item1") for m in messages} == {"item1"}
    assert messages[-2]["delta"] == messages[-1]["transcript"] == "Hello there."


def test_a_live_model_writes_before_the_turn_is_over() -> None:
    items = writer(model="gpt-realtime-whisper")
    items.translate(SpeechStarted(0, 0, 0, 0))
    deltas = []
    for settled in ("", "I", "I am", "I am"):
        deltas += [m["delta"] for m in items.translate(partial(settled))]
    items.translate(SpeechEnded(0, 0, S, 0))
    deltas += [m["delta"] for m in items.translate(final("I am here.")) if m["type"] == DELTA]
    assert deltas == ["I", " am", " here."]


def test_manual_turns_are_what_lies_between_commits() -> None:
    items = writer(manual=True)
    items.append()
    items.append()
    assert items.translate(SpeechStarted(0, 0, 0, 0)) == []
    first = items.commit()
    assert kinds(first) == ["committed", "added", "done"]
    items.append()
    second = items.commit()
    assert second[0]["previous_item_id"] == first[0]["item_id"] == "item1"
    # texts come in order, after both commits
    texts = [items.translate(final(text, segment=n))[-1] for n, text in enumerate(("a", "b"))]
    assert [(m["item_id"], m["transcript"]) for m in texts] == [("item1", "a"), ("item2", "b")]


def test_sound_that_nobody_commits_has_no_text() -> None:
    items = writer(manual=True)
    assert items.translate(final("")) == []
    items.append()
    assert items.translate(final("unsaid")) == []


def test_a_turn_without_words_is_completed_without_deltas() -> None:
    items = writer()
    items.translate(SpeechStarted(0, 0, 0, 0))
    items.translate(SpeechEnded(0, 0, S, 0))
    (completed,) = items.translate(final(""))
    assert completed["type"] == COMPLETED and completed["transcript"] == ""


def test_a_turn_that_is_cut_is_an_item_and_the_rest_another() -> None:
    items = writer()
    items.translate(SpeechStarted(0, 0, 0, 0))
    messages = items.translate(final("one", is_endpoint=False))
    assert kinds(messages) == ["speech_stopped", "committed", "added", "done", "delta", "completed"]
    assert messages[0]["audio_end_ms"] == 1000
    (started,) = items.translate(SpeechStarted(0, 1, S, 0))
    assert started["item_id"] == "item2"


def test_cleared_turns_are_not_spoken_of() -> None:
    items = writer(manual=True)
    items.append()
    items.clear(None)
    assert not items.has_uncommitted
    items.append()
    items.commit()
    assert items.translate(final("dropped")) == []
    assert items.translate(final("kept", segment=1))[-1]["transcript"] == "kept"


def test_a_clear_drops_the_open_turn_and_no_other() -> None:
    items = writer()
    items.translate(SpeechStarted(0, 0, 0, 0))  # over, but its text is still to come
    items.clear(2 * S)  # the turn that is open, not yet told of
    assert kinds(items.translate(SpeechEnded(0, 0, S, 0)))[0] == "speech_stopped"
    assert items.translate(final("kept"))[-1]["transcript"] == "kept"
    assert items.translate(SpeechStarted(0, 1, 2 * S, 0)) == []
    assert items.translate(SpeechEnded(0, 1, 3 * S, 0)) == []
    assert items.translate(final("dropped", segment=1, start=2 * S)) == []
    # the next one may begin in what was cleared: its lead-in does
    assert kinds(items.translate(SpeechStarted(0, 2, 3 * S - 100, 0))) == ["speech_started"]


def test_a_clear_drops_a_turn_that_was_told_of() -> None:
    items = writer()
    items.translate(SpeechStarted(0, 0, S, 0))
    items.clear(S)
    assert items.translate(SpeechEnded(0, 0, 2 * S, 0)) == []
    assert items.translate(final("dropped", start=S)) == []
    assert kinds(items.translate(SpeechStarted(0, 1, 2 * S, 0))) == ["speech_started"]


def test_the_beta_has_items_created() -> None:
    items = writer(manual=True)
    items.is_old = True
    items.append()
    assert kinds(items.commit()) == ["committed", "created"]


def test_a_failure_is_told_of_committed_items_alone() -> None:
    items = writer(manual=True)
    items.append()
    items.commit()
    items.append()
    (failed,) = items.fail("no room")
    assert failed["item_id"] == "item1" and failed["error"]["message"] == "no room"


def test_a_final_that_contradicts_its_deltas_loses_no_words() -> None:
    items = writer(model="gpt-realtime-whisper")
    items.translate(SpeechStarted(0, 0, 0, 0))
    items.translate(SpeechEnded(0, 0, S, 0))
    items.translate(partial("Hello there my"))
    messages = items.translate(final("Hello then my friend"))
    assert messages[-1]["transcript"] == "Hello there my then my friend"
    assert "".join(m["delta"] for m in messages if m["type"] == DELTA) == " then my friend"
