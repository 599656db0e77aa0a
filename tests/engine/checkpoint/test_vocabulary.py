"""A folder with vocab.json and merges.txt gives the tokenizer that tokenizer.json gives."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.api import StreamOptions, Window
from engine.checkpoint.locate import ModelError, find_files
from engine.checkpoint.vocabulary import read_tokenizer
from engine.config import EngineConfig
from engine.decoding.tokenizer import Tokenizer
from engine.local import load_engine
from tests.support.small_model import make_weights, write_hugging_face

TEXTS = (
    " Hello there, it's 12,000 – naïve",
    "No space in front <|en|> <|endoftext|>",
    " 你好世界。今日は東京へ行きました。",
    " 🎉 e\u0301 \n  two",
)


def write_vocabulary(folder: Path, tokenizer: Path, specials: str) -> Path:
    """Write what a tokenizer.json holds as vocab.json and merges.txt.

    Args:
        specials: where the special tokens stand: "added_tokens.json", "vocab.json", or "nowhere".
    """
    whole = json.loads(tokenizer.read_text())
    added = {token["content"]: token["id"] for token in whole["added_tokens"]}
    vocabulary = whole["model"]["vocab"]
    if specials == "vocab.json":
        vocabulary |= added
    if specials == "added_tokens.json":
        (folder / "added_tokens.json").write_text(json.dumps(added))
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    pairs = (pair if isinstance(pair, str) else " ".join(pair) for pair in whole["model"]["merges"])
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(pairs) + "\n")
    return folder / "vocab.json"


@pytest.mark.model
@pytest.mark.parametrize("specials", ["added_tokens.json", "vocab.json", "nowhere"])
@pytest.mark.parametrize("name", ["base", "tiny.en"])
def test_ids_and_texts_equal_those_of_tokenizer_json(
    tmp_path: Path, load_model: Callable[[str], Any], name: str, specials: str
) -> None:
    pytest.importorskip("transformers")
    model = load_model(name)
    path = write_vocabulary(tmp_path, model.files.tokenizer, specials)
    read = Tokenizer(path, model.config.is_multilingual, model.config.vocab_size)
    whole: Tokenizer = model.tokenizer
    for attribute in (
        *("sot", "eot", "start_of_prev", "no_speech", "no_timestamps", "timestamp_begin"),
        *("transcribe", "translate", "languages"),
    ):
        assert getattr(read, attribute) == getattr(whole, attribute), attribute
    assert list(read.languages) == list(whole.languages)
    for text in TEXTS:
        assert read.encode(text) == whole.encode(text)
    tokens = range(whole.eot)
    assert read.decode_words(tokens, "en") == whole.decode_words(tokens, "en")


@pytest.mark.model
async def test_a_model_without_tokenizer_json_hears_the_same(
    tmp_path: Path, base: Any, base_engine: Any, read_clips: list[Any]
) -> None:
    pytest.importorskip("transformers")
    write_vocabulary(tmp_path, base.files.tokenizer, "nowhere")
    shutil.copy(base.files.config, tmp_path)
    parts = (part.read_bytes() for part in base.files.weights)
    (tmp_path / "model.bin").write_bytes(b"".join(parts))
    window = Window(0, read_clips[0].read())
    engine = load_engine(EngineConfig(model=str(tmp_path)))
    try:
        # the language is detected: it is one of the tokens that no file names
        async with engine.stream(StreamOptions()) as stream:
            heard = await stream.decode(window)
    finally:
        engine.close()
    async with base_engine.stream(StreamOptions()) as stream:
        expected = await stream.decode(window)
    assert heard.language == expected.language == "en"
    assert [s.text for s in heard.segments] == [s.text for s in expected.segments]
    assert heard.segments


@pytest.mark.model
def test_another_models_vocabulary_is_refused(tmp_path: Path, base: Any) -> None:
    pytest.importorskip("transformers")
    path = write_vocabulary(tmp_path, base.files.tokenizer, "nowhere")
    with pytest.raises(ModelError, match=r"<\|notimestamps\|> at 53498, got 50364"):
        Tokenizer(path, is_multilingual=True, num_tokens=55_000)


@pytest.mark.parametrize("content", ["", "[]", '{"a": "b"}', "{}"])
def test_a_broken_vocabulary_is_named(tmp_path: Path, content: str) -> None:
    pytest.importorskip("transformers")
    (tmp_path / "vocab.json").write_text(content)
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    with pytest.raises(ModelError, match=r"vocab\.json"):
        Tokenizer(tmp_path / "vocab.json", is_multilingual=True, num_tokens=51_865)


def test_without_the_extra_the_way_out_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)  # as if it were not installed
    (tmp_path / "vocab.json").write_text("{}")
    with pytest.raises(ModelError, match=r"pip install 'wordwire\[transformers\]'"):
        read_tokenizer(tmp_path / "vocab.json")


def test_a_folder_may_have_either(tmp_path: Path) -> None:
    write_hugging_face(tmp_path, make_weights())
    (tmp_path / "vocab.json").touch()
    (tmp_path / "merges.txt").touch()
    assert find_files(tmp_path).tokenizer == tmp_path / "tokenizer.json"
    (tmp_path / "tokenizer.json").unlink()
    assert find_files(tmp_path).tokenizer == tmp_path / "vocab.json"
    (tmp_path / "merges.txt").unlink()
    with pytest.raises(ModelError, match=r"merges\.txt is missing"):
        find_files(tmp_path)
