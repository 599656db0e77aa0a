"""Text to tokens and back, against `tokenizers` itself and hand-made splits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.api import Task
from engine.checkpoint.locate import ModelError
from engine.decoding.tokenizer import Tokenizer, byte_characters

pytestmark = pytest.mark.model  # the tokenizer lies in the model packages

TEXTS = [
    "",
    " Hello, world!",
    "No space in front",
    " C'est l'été à Zürich; 12,5 % — “quoted” …",
    " 你好世界。今日は東京へ行きました。",
    " שלום עולם مرحبا بالعالم",
    " 🎉👩‍👩‍👧‍👦 e\u0301 \u0000",
    " <|endoftext|><|0.00|> <|<|en|>",
]


@pytest.fixture(scope="session", params=["base", "tiny.en"])
def tokenizer(request: Any, load_model: Any) -> Tokenizer:
    found: Tokenizer = load_model(request.param).tokenizer
    return found


@pytest.mark.parametrize("text", TEXTS)
def test_text_survives_encoding(tokenizer: Tokenizer, text: str) -> None:
    tokens = tokenizer.encode(text)
    assert tokenizer.decode(tokens) == text
    assert all(token < tokenizer.eot for token in tokens)


@given(text=st.text(max_size=40))
@settings(deadline=None)
def test_any_text_survives_and_names_no_special_token(base: Any, text: str) -> None:
    # lone surrogates cannot be encoded, and none can arrive: text comes in as UTF-8
    text = text.encode("utf-8", "ignore").decode()
    tokens = base.tokenizer.encode(text)
    assert base.tokenizer.decode(tokens) == text
    assert all(token < base.tokenizer.eot for token in tokens)


@pytest.mark.parametrize("text", TEXTS[:-1])
def test_encoding_equals_the_library(tokenizer: Tokenizer, text: str, load_model: Any) -> None:
    import tokenizers

    path = load_model("base" if tokenizer.is_multilingual else "tiny.en").files.tokenizer
    library = tokenizers.Tokenizer.from_file(str(path))
    tokens = library.encode(text, add_special_tokens=False).ids
    assert tokenizer.encode(text) == tokens
    assert tokenizer.decode(tokens) == library.decode(tokens)


@given(tokens=st.lists(st.integers(0, 51864), max_size=30), language=st.sampled_from(["en", "zh"]))
@settings(deadline=None)
def test_words_spell_the_text_and_use_every_token(
    base: Any, tokens: list[int], language: str
) -> None:
    words = base.tokenizer.decode_words(tokens, language)
    assert "".join(word.text for word in words) == base.tokenizer.decode(tokens)
    text_tokens = [token for token in tokens if token < base.tokenizer.eot]
    assert [token for word in words for token in word.tokens] == text_tokens


def split(tokenizer: Tokenizer, text: str, language: str) -> list[str]:
    return [word.text for word in tokenizer.decode_words(tokenizer.encode(text), language)]


def test_words_are_split_at_spaces_and_punctuation(tokenizer: Tokenizer) -> None:
    assert split(tokenizer, " Well, it's unbelievable!", "en") == [
        " Well",
        ",",
        " it's",
        " unbelievable",
        "!",
    ]


def test_languages_without_spaces_are_split_at_characters(tokenizer: Tokenizer) -> None:
    for language in ("zh", "ja", "th", "lo", "my", "yue"):
        words = split(tokenizer, "你好,世界🎉", language)
        assert "".join(words) == "你好,世界🎉"
        assert len(words) >= 4
        assert "\ufffd" not in "".join(words)


def test_a_character_of_several_tokens_is_never_cut(tokenizer: Tokenizer) -> None:
    tokens = tokenizer.encode("🎉")
    assert len(tokens) > 1
    for length in range(1, len(tokens)):
        assert tokenizer.decode(tokens[:length]) == ""
    assert tokenizer.decode([*tokens, *tokens[:1]]) == "🎉"
    (word,) = tokenizer.decode_words([*tokens, *tokens[:1]], "zh")
    assert word.text == "🎉"
    assert word.tokens == (*tokens, tokens[0])


def test_special_tokens_are_left_out_of_text(tokenizer: Tokenizer) -> None:
    text = tokenizer.encode(" hi")
    times = [tokenizer.timestamp_begin, tokenizer.timestamp_begin + 1500]
    tokens = [tokenizer.sot, times[0], *text, times[1], tokenizer.no_speech, tokenizer.eot]
    assert tokenizer.decode(tokens) == " hi"


def test_special_ids_are_the_models_own(base: Any, tiny_en: Any) -> None:
    """From whisper/tokenizer.py: multilingual and English-only vocabularies differ by one."""
    multilingual, english = base.tokenizer, tiny_en.tokenizer
    assert (multilingual.eot, english.eot) == (50257, 50256)
    assert (multilingual.timestamp_begin, english.timestamp_begin) == (50364, 50363)
    assert (multilingual.no_speech, english.no_speech) == (50362, 50361)
    assert (multilingual.transcribe, multilingual.translate) == (50359, 50358)
    assert (english.transcribe, english.translate, english.languages) == (None, None, {})
    assert len(multilingual.languages) == 99
    assert multilingual.languages["en"] == 50259
    assert multilingual.languages["haw"] == 50352


def test_a_transcript_starts_with_language_and_task(base: Any, tiny_en: Any) -> None:
    start = base.tokenizer.start_sequence("de", Task.TRANSLATE)
    assert start == (50258, 50261, 50358)
    assert base.tokenizer.start_sequence("de", Task.TRANSCRIBE, with_timestamps=False) == (
        50258,
        50261,
        50359,
        50363,
    )
    assert tiny_en.tokenizer.start_sequence(None, Task.TRANSCRIBE) == (50257,)


def test_byte_characters_are_a_bijection() -> None:
    characters = byte_characters()
    assert sorted(characters) == list(range(256))
    assert len(set(characters.values())) == 256
    assert characters[ord(" ")] == "Ġ"


@pytest.mark.parametrize("content", ["", "{}", '{"version": "1.0"}'])
def test_a_broken_tokenizer_is_one_clear_error(tmp_path: Path, content: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(content)
    with pytest.raises(ModelError, match="tokenizer.json") as caught:
        Tokenizer(path, is_multilingual=True)
    assert "\n" not in str(caught.value)


def test_another_models_tokenizer_is_refused(tmp_path: Path) -> None:
    import tokenizers

    path = tmp_path / "tokenizer.json"
    tokenizers.Tokenizer(tokenizers.models.BPE()).save(str(path))
    with pytest.raises(ModelError, match="it is not Whisper's"):
        Tokenizer(path, is_multilingual=True)
