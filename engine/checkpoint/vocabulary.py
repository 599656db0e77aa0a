"""Read a model's tokenizer: tokenizer.json, or vocab.json with merges.txt beside it.

The older pair is all that many fine-tuned models come with. `transformers` knows how to read it; it
is an extra, for nothing else needs it.
"""

from __future__ import annotations

from pathlib import Path

import tokenizers

from engine.checkpoint.locate import ModelError

NUM_TIMESTAMPS = 1501  # 0.00 to 30.00 s in steps of 0.02 s (whisper/tokenizer.py)
# tokens behind the text that are neither languages nor timestamps, in a vocabulary of either kind
NUM_OTHER_SPECIALS = 8
LAST_SPECIAL = "<|notimestamps|>"  # the timestamps follow it


def read_tokenizer(path: Path, num_tokens: int | None = None) -> tokenizers.Tokenizer:
    """Read a tokenizer.json, or the vocab.json of a folder that has none.

    Args:
        num_tokens: of the model, text and special; None: the files name all of them.

    Raises:
        ModelError: a file is broken, not Whisper's, or of the kind that `transformers` reads, which
            is not installed.
    """
    if path.name == "vocab.json":
        return _read_vocabulary(path, num_tokens)
    try:
        return tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises bare Exception for everything
        raise ModelError(f"{path} cannot be read: {error}") from None


def _read_vocabulary(path: Path, num_tokens: int | None) -> tokenizers.Tokenizer:
    try:
        from transformers import WhisperTokenizer
    except ImportError:
        raise ModelError(
            f"{path.parent} has no tokenizer.json, and reading its vocab.json takes transformers: "
            "pip install 'wordwire[transformers]'"
        ) from None
    try:
        loaded = WhisperTokenizer.from_pretrained(path.parent, local_files_only=True)
        tokenizer: tokenizers.Tokenizer = loaded.backend_tokenizer
    except Exception as error:  # whatever the files may hold, and bare Exception from tokenizers
        raise ModelError(f"{path} cannot be read: {error}") from None
    added = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    if num_tokens is not None and LAST_SPECIAL not in added:
        _add_specials(tokenizer, num_tokens)
        expected, found = num_tokens - NUM_TIMESTAMPS - 1, tokenizer.token_to_id(LAST_SPECIAL)
        if found != expected:
            raise ModelError(
                f"{path} is not of a model with {num_tokens} tokens: expected {LAST_SPECIAL} at "
                f"{expected}, got {found}"
            )
    return tokenizer


def _add_specials(tokenizer: tokenizers.Tokenizer, num_tokens: int) -> None:
    """Add the special tokens where no added_tokens.json or tokenizer_config.json named them.

    Their order is the same in every model (whisper/tokenizer.py: get_encoding), and how many of
    them are languages follows from the number of tokens.
    """
    from transformers.models.whisper.tokenization_whisper import LANGUAGES

    eot = tokenizer.token_to_id("<|endoftext|>")
    num_text = len(tokenizer.get_vocab(with_added_tokens=False)) if eot is None else eot
    num_languages = num_tokens - num_text - NUM_OTHER_SPECIALS - NUM_TIMESTAMPS
    # one token under its older name and its newer one
    knows_older = tokenizer.token_to_id("<|nocaptions|>") is not None
    no_speech = "<|nocaptions|>" if knows_older else "<|nospeech|>"
    tokenizer.add_special_tokens(
        [
            "<|endoftext|>",
            "<|startoftranscript|>",
            *(f"<|{code}|>" for code in list(LANGUAGES)[:num_languages]),
            "<|translate|>",
            "<|transcribe|>",
            "<|startoflm|>",
            "<|startofprev|>",
            no_speech,
            LAST_SPECIAL,
        ]
    )
