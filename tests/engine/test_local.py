"""The whole engine, with real weights: against transformers, against itself, and its limits."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from engine.api import (
    MAX_WINDOW,
    EngineBusy,
    Hypothesis,
    InvalidRequest,
    Samples,
    StreamLost,
    StreamOptions,
    Task,
    Watched,
    Window,
)
from engine.config import EngineConfig
from engine.local import LocalEngine, load_engine
from engine.model.mel import LogMel

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def exact(base: Any) -> Iterator[LocalEngine]:
    """Base as the reference computes it: float32, all of the silence."""
    engine = load_engine(EngineConfig(dtype="float32", encoder_tail="full", max_batch=8))
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def fast(base: Any) -> Iterator[LocalEngine]:
    """Base as the service runs it."""
    engine = load_engine(EngineConfig(max_streams=40))
    yield engine
    engine.close()


async def decode(
    engine: LocalEngine, audio: Samples, options: StreamOptions | None = None, **fields: Any
) -> Hypothesis:
    async with engine.stream(options or StreamOptions(language="en")) as stream:
        return await stream.decode(replace(Window(0, audio), **fields))


def generate(hf: Any, config: Any, audio: Samples) -> list[int]:
    """Decode greedily with transformers."""
    mel = LogMel(config.num_mels)([torch.from_numpy(audio)]).dense()
    options = {"language": "en", "task": "transcribe"} if config.is_multilingual else {}
    tokens = hf.generate(mel, return_timestamps=True, do_sample=False, num_beams=1, **options)
    return [int(token) for token in tokens[0]]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("name", "fixture"), [("base", "base"), ("tiny.en", "tiny_en")])
async def test_greedy_tokens_equal_transformers(
    name: str,
    fixture: str,
    request: pytest.FixtureRequest,
    exact: LocalEngine,
    read_clips: list[Any],
    reference: Callable[[Any], Any],
) -> None:
    loaded = request.getfixturevalue(fixture)
    hf = reference(loaded)
    config = EngineConfig(model=name, dtype="float32", encoder_tail="full", max_batch=8)
    engine = exact if name == "base" else load_engine(config)
    try:
        clips = [clip.read() for clip in read_clips if clip.duration_s < 12][::24]
        # all at once, so that rows of many lengths share every batch
        found = await asyncio.gather(*(decode(engine, clip) for clip in clips))
        for clip, hypothesis in zip(clips, found, strict=True):
            assert list(hypothesis.tokens) == generate(hf, loaded.config, clip)
    finally:
        if engine is not exact:
            engine.close()


async def test_a_batch_of_n_equals_n_of_one(fast: LocalEngine, read_clips: list[Any]) -> None:
    clips = [clip.read() for clip in read_clips[1::14]]
    clips.append(clips[0][8_000:14_400])  # a word of 0.4 s among the long ones
    alone = [await decode(fast, clip) for clip in clips]
    together = await asyncio.gather(*(decode(fast, clip) for clip in clips))
    assert [h.tokens for h in together] == [h.tokens for h in alone]


async def test_a_draft_changes_no_token(tiny_en: Any, read_clips: list[Any]) -> None:
    """A window that grows, then one that begins later, as a session sends them."""
    engine = load_engine(EngineConfig(model="tiny.en"))
    try:
        for clip in [clip for clip in read_clips if 4 < clip.duration_s < 8][::12]:
            audio = clip.read()
            windows = [Window(0, audio[:n]) for n in range(16_000, len(audio), 16_000)]
            windows.append(Window(16_000, audio[16_000:]))
            async with engine.stream(StreamOptions()) as stream:
                drafted = [await stream.decode(window) for window in windows]
            for window, hypothesis in zip(windows, drafted, strict=True):
                async with engine.stream(StreamOptions()) as stream:
                    assert (await stream.decode(window)).tokens == hypothesis.tokens
        assert engine.counters.num_accepted > engine.counters.num_sampled / 4
    finally:
        engine.close()


async def test_the_language_is_detected_and_kept(fast: LocalEngine, recordings: list[Any]) -> None:
    clip = next(r for r in recordings if r.category == "lang" and r.language == "de")
    async with fast.stream(StreamOptions()) as stream:
        first = await stream.decode(Window(0, clip.read()[:160_000]))
        assert first.language == "de" and first.language_probability > 0.5
        noise = np.random.default_rng(0).normal(0, 0.01, 16_000).astype(np.float32)
        assert (await stream.decode(Window(160_000, noise))).language == "de"


async def test_times_count_from_the_start_of_the_stream(
    fast: LocalEngine, read_clips: list[Any]
) -> None:
    audio = read_clips[0].read()
    hypothesis = await decode(fast, audio, start=1_000_000, word_times=True)
    assert (hypothesis.start, hypothesis.end) == (1_000_000, 1_000_000 + len(audio))
    at = 1_000_000
    for segment in hypothesis.segments:
        assert at <= segment.start < segment.end <= hypothesis.end
        assert "".join(word.text for word in segment.words) == segment.text
        for word in segment.words:
            assert at <= word.start < word.end <= hypothesis.end
            assert 0 < word.probability <= 1
            at = word.end


async def test_translation(fast: LocalEngine, recordings: list[Any]) -> None:
    clip = next(
        r
        for r in recordings
        if r.category == "lang" and r.language == "es" and r.path.suffix in {".wav", ".flac"}
    )
    options = StreamOptions(language="es", task=Task.TRANSLATE)
    hypothesis = await decode(fast, clip.read()[:480_000], options)
    assert {"the", "and", "of", "to"} & set(hypothesis.text.lower().split())


async def test_hotwords_and_prompts_belong_to_their_stream(
    fast: LocalEngine, read_clips: list[Any]
) -> None:
    audio = read_clips[0].read()
    plain = await decode(fast, audio)
    spelt = StreamOptions(language="en", hotwords=("Gregsohn",))
    prompted, again = await asyncio.gather(
        decode(fast, audio, spelt, prompt="Doctor Gregsohn sat down."), decode(fast, audio)
    )
    assert "Gregsohn" in prompted.text
    assert again.tokens == plain.tokens


async def test_a_prompt_of_any_length_fits(fast: LocalEngine, read_clips: list[Any]) -> None:
    prompt = "It was the best of times, it was the worst of times. " * 100
    hypothesis = await decode(fast, read_clips[0].read(), prompt=prompt)
    assert hypothesis.text


async def test_silence_is_called_so(fast: LocalEngine) -> None:
    hypothesis = await decode(fast, np.zeros(48_000, np.float32))
    assert hypothesis.no_speech_probability > 0.5


@pytest.mark.parametrize(
    "audio",
    [
        np.zeros(0, np.float32),
        np.zeros(MAX_WINDOW + 1, np.float32),
        np.full(16_000, np.nan, np.float32),
        np.array([0, np.inf], np.float32),
        np.zeros(16_000, np.float64),
        np.zeros((2, 16_000), np.float32),
    ],
    ids=["empty", "too long", "NaN", "infinite", "float64", "stereo"],
)
async def test_what_cannot_be_decoded_is_refused(fast: LocalEngine, audio: Any) -> None:
    with pytest.raises(InvalidRequest, match="expected"):
        await decode(fast, audio)


@pytest.mark.parametrize("num_samples", [1, 160, MAX_WINDOW])
async def test_the_extremes_are_decoded(fast: LocalEngine, num_samples: int) -> None:
    assert (await decode(fast, np.zeros(num_samples, np.float32))).end == num_samples


async def test_unknown_options_are_refused(fast: LocalEngine) -> None:
    with pytest.raises(InvalidRequest, match="languages"):
        fast.stream(StreamOptions(language="tlh"))
    with pytest.raises(InvalidRequest, match="temperatures"):
        fast.stream(StreamOptions(temperatures=()))


async def test_an_english_model_does_not_translate(tiny_en: Any) -> None:
    engine = load_engine(EngineConfig(model="tiny.en"))
    try:
        assert engine.info.languages == ("en",)
        with pytest.raises(InvalidRequest, match="translate"):
            engine.stream(StreamOptions(task=Task.TRANSLATE))
        with pytest.raises(InvalidRequest, match="en"):
            engine.stream(StreamOptions(language="de"))
    finally:
        engine.close()


async def test_streams_beyond_the_limit_are_refused(fast: LocalEngine) -> None:
    opened = [fast.stream(StreamOptions()) for _ in range(40)]
    for context in opened:
        await context.__aenter__()
    with pytest.raises(EngineBusy):
        fast.stream(StreamOptions())
    for context in opened:
        await context.__aexit__(None, None, None)
    async with fast.stream(StreamOptions()):
        pass


async def all_pages_free(engine: LocalEngine) -> None:
    """Wait for the thread: it frees the pages of a window just after it has answered."""
    async with asyncio.timeout(30):
        while engine.num_free_pages != engine.num_pages:
            await asyncio.sleep(0.01)


async def test_a_cancelled_window_frees_all_at_any_point(
    fast: LocalEngine, read_clips: list[Any]
) -> None:
    audio = read_clips[0].read()
    async with fast.stream(StreamOptions(language="en")) as stream:
        for delay_s in (0, 0.001, 0.01, 0.03, 0.06, 0.1):
            task = asyncio.create_task(stream.decode(Window(0, audio)))
            await asyncio.sleep(delay_s)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        # the thread takes aborts in before the next window
        assert (await stream.decode(Window(0, audio))).text
    await all_pages_free(fast)


def test_a_caller_whose_event_loop_is_gone_stops_no_other(
    fast: LocalEngine, read_clips: list[Any]
) -> None:
    audio = read_clips[0].read()
    loop = asyncio.new_event_loop()

    async def leave() -> None:
        context = fast.stream(StreamOptions(language="en"))
        stream = await context.__aenter__()
        future = asyncio.ensure_future(stream.decode(Window(0, audio)))
        await asyncio.sleep(0.01)
        abandoned.append((context, future))

    abandoned: list[Any] = []
    loop.run_until_complete(leave())
    loop.close()
    assert asyncio.run(decode(fast, audio)).text
    asyncio.run(all_pages_free(fast))


async def test_a_closed_engine_says_so(tiny_en: Any, read_clips: list[Any]) -> None:
    engine = load_engine(EngineConfig(model="tiny.en"))
    async with engine.stream(StreamOptions()) as stream:
        task = asyncio.create_task(stream.decode(Window(0, read_clips[0].read())))
        await asyncio.sleep(0.01)
        engine.close()
        with pytest.raises(StreamLost):
            await task
        with pytest.raises(StreamLost):
            await stream.decode(Window(0, read_clips[0].read()))


async def test_an_engine_whose_thread_died_says_so(
    tiny_en: Any, read_clips: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("what only our bug can cause")

    with contextlib.closing(load_engine(EngineConfig(model="tiny.en", max_batch=3))) as engine:
        assert isinstance(engine, Watched) and engine.is_up
        limits = engine.statistics()
        assert (limits["max_batch"], limits["max_encode_batch"]) == (3, 8)
        monkeypatch.setattr(engine._scheduler, "next", fail)
        async with asyncio.timeout(60), engine.stream(StreamOptions()) as stream:
            for _ in range(2):  # the second when it is dead already
                with pytest.raises(StreamLost):
                    await stream.decode(Window(0, read_clips[0].read()))
        assert not engine.is_up and engine.num_restarts == 0


async def test_a_bad_final_is_decoded_again_without_holding_up_others(
    base: Any, read_clips: list[Any]
) -> None:
    """With a limit that no text meets, every temperature is tried and the best one kept."""
    engine = load_engine(EngineConfig(min_avg_logprob=0.0, max_no_speech_probability=1.0))
    try:
        audio = read_clips[0].read()
        options = StreamOptions(language="en", temperatures=(0.0, 0.4, 0.8))
        final, partial = await asyncio.gather(
            decode(engine, audio, options, is_final=True), decode(engine, audio)
        )
        assert final.temperature == 0.0 and final.text == partial.text
        assert engine.counters.num_attempts == 4
        assert engine.counters.num_encoded == 2
    finally:
        engine.close()


async def test_a_text_at_a_high_temperature_is_the_same_each_time(
    fast: LocalEngine, read_clips: list[Any]
) -> None:
    audio = read_clips[0].read()
    options = StreamOptions(language="en", temperatures=(1.0,))
    texts = {(await decode(fast, audio, options, is_final=True)).text for _ in range(2)}
    greedy = await decode(fast, audio)
    assert len(texts) == 1 and texts != {greedy.text}
