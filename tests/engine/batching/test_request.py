from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.api import SAMPLE_RATE, InvalidRequest, StreamOptions, Task, Window
from engine.batching.request import (
    check_options,
    check_window,
    limit_tokens,
    set_language,
    shift_in_steps,
    write_prefix,
)
from engine.batching.sequence import Sequence
from engine.decoding.prompt import PromptWriter
from tests.support.sequences import make_sequence

pytestmark = pytest.mark.model


def test_a_window_of_audio_passes() -> None:
    check_window(Window(0, np.zeros(16_000, np.float32)))


@pytest.mark.parametrize("audio", [[0.0] * 16_000, None, np.zeros(16_000, np.int16)])
def test_what_is_not_audio_is_refused_with_what_was_found(audio: Any) -> None:
    with pytest.raises(InvalidRequest, match="expected audio of shape"):
        check_window(Window(0, audio))


def test_options_of_the_model_pass(base: Any) -> None:
    check_options(StreamOptions("de", Task.TRANSLATE), base.tokenizer)
    check_options(StreamOptions(), base.tokenizer)


@pytest.mark.parametrize(
    "options",
    [StreamOptions("xx"), StreamOptions(temperatures=()), StreamOptions(temperatures=(0.0, 3.0))],
)
def test_other_options_are_refused(base: Any, options: StreamOptions) -> None:
    with pytest.raises(InvalidRequest, match="expected"):
        check_options(options, base.tokenizer)


def test_prompt_and_hotwords_stand_before_the_start(base: Any) -> None:
    tokenizer = base.tokenizer
    prompts = PromptWriter(tokenizer, ("Wordwire",))
    prefix = write_prefix(prompts, "Guten Tag.", Task.TRANSCRIBE, "de", tokenizer)
    start = list(tokenizer.start_sequence("de", Task.TRANSCRIBE))
    assert prefix[0] == tokenizer.start_of_prev and prefix[-3:] == start
    assert tokenizer.decode(prefix[1:-3]) == " Wordwire Guten Tag."


def test_a_long_prompt_leaves_room_for_text(base: Any) -> None:
    prompts = PromptWriter(base.tokenizer)
    prefix = write_prefix(prompts, "word " * 1000, Task.TRANSCRIBE, "en", base.tokenizer)
    assert len(prefix) == 1 + 223 + 3


@pytest.mark.parametrize(("seconds", "tokens"), [(0, 40), (2, 90), (7, 215), (8, 224), (30, 224)])
def test_a_short_window_has_room_for_fewer_tokens(seconds: int, tokens: int) -> None:
    assert limit_tokens(seconds * SAMPLE_RATE) == tokens


def test_a_language_that_was_detected_is_written_in_its_place(base: Any) -> None:
    prefix = write_prefix(PromptWriter(base.tokenizer), "", Task.TRANSCRIBE, None, base.tokenizer)
    sequence: Sequence = make_sequence(0)
    sequence.prefix, sequence.needs_language = prefix, True
    set_language(sequence, "fr", base.tokenizer)
    assert sequence.prefix == list(base.tokenizer.start_sequence("fr", Task.TRANSCRIBE))
    assert not sequence.needs_language


def test_a_shift_counts_steps_of_20_ms() -> None:
    assert [shift_in_steps(n) for n in (0, 320, 3200, 470)] == [0, 1, 10, 1]
