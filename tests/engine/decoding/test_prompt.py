"""What the decoder is told ahead of a window."""

from __future__ import annotations

from typing import Any

import pytest

from engine.decoding.prompt import MAX_HOTWORD_CHARACTERS, MAX_TEXT_CHARACTERS, PromptWriter
from engine.decoding.tokenizer import Tokenizer

pytestmark = pytest.mark.model  # the tokenizer lies in the model packages


class CountingTokenizer:
    """Counts what it encodes."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.start_of_prev = tokenizer.start_of_prev
        self.num_texts = 0
        self.num_characters = 0
        self._tokenizer = tokenizer

    def encode(self, text: str) -> list[int]:
        self.num_texts += 1
        self.num_characters += len(text)
        return self._tokenizer.encode(text)


@pytest.fixture(scope="session", params=["base", "tiny.en"])
def tokenizer(request: Any, load_model: Any) -> Tokenizer:
    found: Tokenizer = load_model(request.param).tokenizer
    return found


def test_nothing_to_know_is_no_prompt(tokenizer: Tokenizer) -> None:
    assert PromptWriter(tokenizer, ["", " "]).write((1, 2), " \n") == (1, 2)


def test_previous_text_is_cut_from_the_left(tokenizer: Tokenizer) -> None:
    text = " ".join(f"word{n}" for n in range(300))
    prompt = PromptWriter(tokenizer).write((1, 2, 3), text)
    assert prompt[0] == tokenizer.start_of_prev
    assert prompt[-3:] == (1, 2, 3)
    assert len(prompt) == 1 + 223 + 3
    assert tokenizer.decode(prompt[1:-3]).endswith("word298 word299")


def test_hotwords_stand_first_and_leave_room(tokenizer: Tokenizer) -> None:
    text = " ".join(f"word{n}" for n in range(300))
    hotwords = [f"Name{n}" for n in range(200)]
    prompt = PromptWriter(tokenizer, hotwords).write((1,), text)
    assert len(prompt) <= 1 + 223 + 1
    said = tokenizer.decode(prompt[1:-1])
    assert said.startswith(" Name0, Name1, ")
    assert said.endswith("word299")
    # without previous text hotwords have all the room
    alone = PromptWriter(tokenizer, hotwords).write((1,))
    assert len(prompt) // 2 < len(alone) <= 1 + 223 + 1


@pytest.mark.parametrize("size", [4000, 5000, 100_000])
def test_a_hotword_too_long_is_left_out_whole(tokenizer: Tokenizer, size: int) -> None:
    prompt = PromptWriter(tokenizer, ["x" * size, "Wordwire"]).write((1,))
    assert tokenizer.decode(prompt[1:-1]) == " Wordwire"


def test_hotwords_and_a_text_are_encoded_once_for_a_stream(tokenizer: Tokenizer) -> None:
    counting: Any = CountingTokenizer(tokenizer)
    writer = PromptWriter(counting, ["Wordwire", "Zurich"])
    first = writer.write((1,), "Good morning.")
    assert counting.num_texts == 3
    for _ in range(5):
        assert writer.write((1,), "Good morning.") == first
        assert writer.write((2, 3), "Good morning.") == (*first[:-1], 2, 3)
    assert counting.num_texts == 3
    assert writer.write((1,), "Good evening.") != first
    assert counting.num_texts == 4, "the hotwords are known"


def test_of_many_texts_only_the_newest_are_kept(tokenizer: Tokenizer) -> None:
    writer = PromptWriter(tokenizer)
    for number in range(100):
        writer.write((1,), f"text {number}")
    assert len(writer._prompts) < 10


def test_a_client_cannot_have_more_encoded_than_may_fit(tokenizer: Tokenizer) -> None:
    counting: Any = CountingTokenizer(tokenizer)
    hotwords = [f"Name{number}" * 10 for number in range(8_000)]
    writer = PromptWriter(counting, hotwords)
    prompt = writer.write((1,), "word " * 20_000)
    assert counting.num_characters < 2 * MAX_HOTWORD_CHARACTERS + MAX_TEXT_CHARACTERS
    assert len(prompt) <= 1 + 223 + 1


@pytest.mark.parametrize(
    "word", ["word", "antidisestablishmentarianism", "\u4f60\u597d", "a, b  c"]
)
def test_the_end_of_a_long_text_is_told_as_if_all_of_it_were_encoded(
    tokenizer: Tokenizer, word: str
) -> None:
    text = " ".join(f"{word}{number}" for number in range(3_000))
    prompt = PromptWriter(tokenizer).write((), text)
    assert list(prompt[1:]) == tokenizer.encode(" " + text)[-223:]
