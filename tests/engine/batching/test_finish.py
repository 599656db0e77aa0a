"""What becomes of a sequence that stopped, with a runner that only remembers what it forgot."""

from __future__ import annotations

from collections.abc import Sequence as Rows
from typing import Any

import numpy as np
import pytest
from torch import Tensor

from engine.api import Hypothesis, Samples, StreamOptions, Window
from engine.batching.counters import Counters
from engine.batching.finish import Finisher
from engine.batching.request import Request, Result, StreamState
from engine.batching.sequence import Sequence
from engine.config import EngineConfig
from engine.decoding.language import DetectedLanguage, StreamLanguage
from engine.decoding.prompt import PromptWriter
from tests.support.sequences import make_sequence

pytestmark = pytest.mark.model


class FakeRunner:
    def encode(self, sequences: Rows[Sequence], audio: Rows[Samples]) -> None:
        raise AssertionError("a window is encoded once")

    def step(self, sequences: Rows[Sequence]) -> None: ...

    def forget(self, sequence: Sequence) -> None: ...

    def read_alignment(self, sequence: Sequence) -> Tensor:
        raise AssertionError("word times were not asked for")


class Setup:
    def __init__(self, tokenizer: Any, *, is_final: bool = True) -> None:
        self.tokenizer = tokenizer
        self.finisher = Finisher(EngineConfig(), tokenizer, FakeRunner(), Counters())
        self.outcomes: list[Result] = []
        options = StreamOptions(language="en", temperatures=(0.0, 0.2, 0.4))
        self.stream = StreamState(0, options, StreamLanguage("en"), PromptWriter(tokenizer))
        self.window = Window(32_000, np.zeros(48_000, np.float32), is_final=is_final)
        self.sequence = make_sequence(0, is_final=is_final)
        self.request = Request(
            self.stream,
            self.window,
            self.sequence,
            self.outcomes.append,
            DetectedLanguage("en", 1.0),
        )

    def say(self, text: str, logprob: float = -0.1, *, silence: float = 0.0) -> bool:
        begin = self.tokenizer.timestamp_begin
        self.sequence.tokens = [begin, *self.tokenizer.encode(text), begin + 100]
        self.sequence.logprobs = [logprob] * (len(self.sequence.tokens) + 1)
        self.sequence.no_speech_probability = silence
        self.sequence.is_ended = True
        return self.finisher.finish(self.request)

    @property
    def answer(self) -> Hypothesis:
        (outcome,) = self.outcomes
        assert isinstance(outcome, Hypothesis)
        return outcome


def test_a_good_text_is_answered_and_remembered(base: Any) -> None:
    setup = Setup(base.tokenizer)
    assert setup.say(" Good morning.")
    segment = setup.answer.segments[0]
    assert (segment.text, segment.start, segment.end) == (" Good morning.", 32_000, 64_000)
    assert setup.answer.avg_logprob == pytest.approx(-0.1)
    assert setup.stream.last_hypothesis is not None
    assert setup.stream.last_hypothesis.tokens == setup.answer.tokens


def test_an_improbable_final_is_tried_again_on_the_same_encode(base: Any) -> None:
    setup = Setup(base.tokenizer)
    assert not setup.say(" God mourning.", -2.0)
    assert not setup.outcomes
    assert setup.sequence.temperature == 0.2 and setup.sequence.num_cached == 0
    assert setup.say(" Good morning.", -0.3)
    assert setup.answer.temperature == 0.2 and setup.answer.text == " Good morning."


def test_a_loop_is_tried_again(base: Any) -> None:
    setup = Setup(base.tokenizer)
    assert not setup.say(" and then" * 40)


def test_where_none_is_good_the_most_probable_that_does_not_loop_is_kept(base: Any) -> None:
    setup = Setup(base.tokenizer)
    assert not setup.say(" and then" * 40, -0.2)
    assert not setup.say(" something", -1.5)
    assert setup.say(" something else", -1.9)
    assert setup.answer.text == " something" and setup.answer.temperature == 0.2


def test_silence_is_not_tried_again(base: Any) -> None:
    setup = Setup(base.tokenizer)
    assert setup.say(" Thank you.", -2.0, silence=0.9)
    assert setup.answer.no_speech_probability == 0.9


def test_a_partial_is_not_tried_again(base: Any) -> None:
    setup = Setup(base.tokenizer, is_final=False)
    assert setup.say(" God mourning.", -2.0)


def test_a_text_of_chance_is_no_draft(base: Any) -> None:
    setup = Setup(base.tokenizer)
    setup.say(" God mourning.", -2.0)
    setup.say(" Good morning.", -0.3)
    assert setup.stream.last_hypothesis is None


def test_a_language_is_detected_before_the_text(base: Any) -> None:
    setup = Setup(base.tokenizer)
    setup.stream.language = StreamLanguage(None)
    setup.request.detected_language = None
    setup.sequence.prefix = list(base.tokenizer.start_sequence("en", setup.stream.options.task))
    setup.sequence.needs_language = True
    setup.sequence.language_probabilities = {"en": 0.05, "fr": 0.95}
    assert not setup.finisher.finish(setup.request)
    assert setup.sequence.prefix[1] == base.tokenizer.languages["fr"]
    assert not setup.sequence.needs_language and not setup.outcomes
    setup.say(" Bonjour.")
    assert setup.answer.language == "fr"
    assert setup.answer.language_probability == pytest.approx(0.95)


def test_a_text_whose_words_cannot_be_aligned_is_answered_without_their_times(
    base: Any, caplog: pytest.LogCaptureFixture
) -> None:
    setup = Setup(base.tokenizer)
    setup.sequence.word_times = True  # and the runner has no alignment
    assert setup.say(" Good morning.")
    (segment,) = setup.answer.segments
    assert segment.text == " Good morning." and not segment.words
    assert "words could not be aligned" in caplog.text
