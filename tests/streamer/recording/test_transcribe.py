"""Whole recordings over a scripted engine."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator

import numpy as np
import pytest

from engine.api import Hypothesis, InvalidRequest, Samples, Window
from streamer.recording.transcribe import transcribe
from streamer.transcription.settings import SessionSettings
from tests.support.engines import ScriptedEngine
from tests.support.timeline import Recogniser, Timeline, timeline


async def blocks(samples: Samples, size: int) -> AsyncIterator[Samples]:
    for i in range(0, len(samples), size):
        yield samples[i : i + size]


async def heard(engine: ScriptedEngine, talk: Timeline, size: int = 7000) -> list[Hypothesis]:
    results = transcribe(engine, blocks(talk.samples, size), SessionSettings())
    hypotheses = [hypothesis async for hypothesis in results]
    assert engine.num_open == 0
    return hypotheses


def text(hypotheses: list[Hypothesis]) -> str:
    return "".join(hypothesis.text for hypothesis in hypotheses).strip()


@pytest.mark.parametrize("size", [100, 7000, 1 << 24])
async def test_no_word_is_lost_or_doubled(size: int) -> None:
    talk = timeline([5, 9, 30, 2, 90, 3], [0.4, 0.8, 3.0, 6.0, 0.5, 0.2])
    assert text(await heard(ScriptedEngine(Recogniser(talk.words)), talk, size)) == talk.text


async def test_talk_without_pauses_is_cut_between_words() -> None:
    talk = timeline([400], [0.5], gap_s=0.05, stops=False)
    engine = ScriptedEngine(Recogniser(talk.words))
    assert text(await heard(engine, talk)) == talk.text
    assert all(len(window.audio) <= 30 * 16_000 for window in engine.recogniser.windows)


async def test_long_silence_is_not_decoded() -> None:
    talk = timeline([3, 3], [20.0, 1.0])
    engine = ScriptedEngine(Recogniser(talk.words))
    assert text(await heard(engine, talk)) == talk.text
    assert sum(len(window.audio) for window in engine.recogniser.windows) < 6 * 16_000


async def test_a_recording_without_speech_gives_nothing() -> None:
    silence = Timeline((), np.zeros(160_000, np.float32))
    assert await heard(ScriptedEngine(Recogniser((), invent=" Thanks.")), silence) == []


async def test_the_first_window_decides_on_the_language() -> None:
    talk = timeline([60, 60, 60], [3.0, 3.0, 3.0])
    engine = ScriptedEngine(Recogniser(talk.words))
    await heard(engine, talk)
    languages = [options.language for options in engine.options]
    assert languages[0] is None
    assert set(languages[1:]) == {"en"}


async def test_windows_are_decoded_side_by_side_and_given_in_order() -> None:
    talk = timeline([20] * 8, [3.0] * 8)
    engine = ScriptedEngine(Recogniser(talk.words), cost_s=0.05)
    started = asyncio.get_running_loop().time()
    hypotheses = await heard(engine, talk)
    assert len(hypotheses) == 8
    assert [h.start for h in hypotheses] == sorted(h.start for h in hypotheses)
    assert asyncio.get_running_loop().time() - started < 8 * 0.05 + 2.0


async def test_lost_streams_are_replaced() -> None:
    talk = timeline([20] * 4, [3.0] * 4)
    engine = ScriptedEngine(Recogniser(talk.words), lose_every=3)
    assert text(await heard(engine, talk)) == talk.text


async def test_a_refusal_is_raised() -> None:
    engine = ScriptedEngine(Recogniser(()))
    engine.failure = InvalidRequest("expected less")
    with pytest.raises(InvalidRequest):
        await heard(engine, timeline([3], [1.0]))
    assert engine.num_open == 0


async def test_leaving_early_aborts_what_is_in_flight() -> None:
    talk = timeline([20] * 4, [3.0] * 4)
    engine = ScriptedEngine(Recogniser(talk.words))
    results = transcribe(engine, blocks(talk.samples, 16_000), SessionSettings())
    await anext(results)
    await results.aclose()
    assert engine.num_open == 0


async def test_a_loop_is_cut_and_what_comes_before_it_is_kept() -> None:
    class Looping(Recogniser):
        def decode(self, window: Window) -> Hypothesis:
            hypothesis = super().decode(window)
            (segment,) = hypothesis.segments
            segment = dataclasses.replace(segment, text=segment.text + " so" * 30, words=())
            return dataclasses.replace(hypothesis, segments=(segment,), compression_ratio=9.0)

    talk = timeline([4], [1.0])
    hypotheses = await heard(ScriptedEngine(Looping(talk.words)), talk)
    assert text(hypotheses) == talk.text + " so"


async def test_what_one_decode_has_no_room_for_is_decoded_in_a_further_window() -> None:
    class Cramped(Recogniser):
        def decode(self, window: Window) -> Hypothesis:
            hypothesis = super().decode(window)
            (segment,) = hypothesis.segments
            if len(segment.words) <= 12:
                return hypothesis
            words = segment.words[:12]
            text = "".join(word.text for word in words)
            # without a closing timestamp, the text is said to last to the window's end
            segment = dataclasses.replace(segment, text=text, words=words, end=window.end)
            return dataclasses.replace(hypothesis, segments=(segment,), is_truncated=True)

    talk = timeline([40], [0.8])
    assert text(await heard(ScriptedEngine(Cramped(talk.words)), talk)) == talk.text


async def test_speech_behind_the_last_segment_of_a_window_is_decoded_too() -> None:
    """The model may close its last segment well before the window's end, and stop."""

    class Lazy(Recogniser):
        def decode(self, window: Window) -> Hypothesis:
            hypothesis = super().decode(window)
            segments = tuple(
                dataclasses.replace(
                    segment,
                    text="".join(word.text for word in segment.words[:20]),
                    words=segment.words[:20],
                    end=segment.words[:20][-1].end,
                )
                for segment in hypothesis.segments
            )
            return dataclasses.replace(hypothesis, segments=segments)

    talk = timeline([50, 3], [0.6, 0.8])
    assert text(await heard(ScriptedEngine(Lazy(talk.words)), talk)) == talk.text
