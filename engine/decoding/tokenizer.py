"""Text to tokens and back, with the special ids that the model's own tokenizer knows.

The files are read by `engine.checkpoint.vocabulary`. All methods are pure: nothing is remembered
between calls, so one Tokenizer serves every stream and thread.
"""

from __future__ import annotations

import codecs
import re
import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.api import Task
from engine.checkpoint.locate import ModelError
from engine.checkpoint.vocabulary import read_tokenizer

TIMESTAMP_STEP = 320  # samples between two timestamp tokens, 20 ms (whisper/tokenizer.py)
LANGUAGE = re.compile(r"<\|([a-z]{2,3})\|>")
# written without spaces between words (whisper/tokenizer.py: split_to_word_tokens)
UNSPACED_LANGUAGES = frozenset({"zh", "ja", "th", "lo", "my", "yue"})


@dataclass(frozen=True, slots=True)
class WordTokens:
    """A word, or another piece of text that is not split further, and the tokens that spell it."""

    text: str
    tokens: tuple[int, ...]


class Tokenizer:
    """The tokenizer of one model.

    Attributes:
        sot, eot: start of transcript, end of text. Text tokens are those below eot.
        transcribe, translate: the tasks; None in an English-only model.
        no_timestamps, no_speech, start_of_prev: as named.
        timestamp_begin: the token of 0.00 s; the n-th after it means n * 0.02 s.
        languages: token of each language, by ISO code; empty in an English-only model.
    """

    def __init__(self, path: Path, is_multilingual: bool, num_tokens: int | None = None) -> None:
        """Read a model's tokenizer.

        Args:
            path: `ModelFiles.tokenizer`.
            is_multilingual: from `ModelConfig`; an English-only model's file lists languages too.
            num_tokens: `ModelConfig.vocab_size`; None where the files name all special tokens.

        Raises:
            ModelError: the file cannot be read, or is not Whisper's.
        """
        self._tokenizer = read_tokenizer(path, num_tokens)
        self._path = path
        self.is_multilingual = is_multilingual
        self.sot = self._find("<|startoftranscript|>")
        self.eot = self._find("<|endoftext|>")
        self.start_of_prev = self._find("<|startofprev|>")
        self.no_speech = self._find("<|nospeech|>", "<|nocaptions|>")
        self.no_timestamps = self._find("<|notimestamps|>")
        # some files leave the timestamps out; in every model they follow no_timestamps
        self.timestamp_begin = self.no_timestamps + 1
        self.transcribe = self._find("<|transcribe|>") if is_multilingual else None
        self.translate = self._find("<|translate|>") if is_multilingual else None
        self.languages: dict[str, int] = {}
        if is_multilingual:
            for id, token in sorted(self._tokenizer.get_added_tokens_decoder().items()):
                match = LANGUAGE.fullmatch(token.content)
                if match:
                    self.languages[match[1]] = id
        self._bytes = self._spell_tokens()

    def _find(self, *names: str) -> int:
        for name in names:
            id = self._tokenizer.token_to_id(name)
            if id is not None:
                return int(id)
        raise ModelError(f"{self._path} has no {names[0]}: it is not Whisper's")

    def _spell_tokens(self) -> list[bytes]:
        """List the bytes of every text token."""
        bytes_of = {character: byte for byte, character in byte_characters().items()}
        spelling = [b""] * self.eot
        for token, id in self._tokenizer.get_vocab(with_added_tokens=False).items():
            if id < self.eot:
                spelling[id] = bytes(bytes_of[character] for character in token)
        return spelling

    def encode(self, text: str) -> list[int]:
        """Encode plain text. What looks like a special token in it is spelt out as text."""
        # a prompt comes from a client: no piece may hold a whole "<|", or it could name one
        pieces = re.split(r"(?<=<)(?=\|)", text)
        encodings = self._tokenizer.encode_batch(pieces, add_special_tokens=False)
        return [id for encoding in encodings for id in encoding.ids]

    def decode(self, tokens: Iterable[int]) -> str:
        """Decode text tokens, leaving out timestamps and all other special ones.

        A character that is cut off at the end is left out; bytes that are none become U+FFFD.
        """
        spelling = b"".join([self._bytes[token] for token in tokens if token < self.eot])
        return codecs.getincrementaldecoder("utf-8")("replace").decode(spelling)

    def decode_words(self, tokens: Sequence[int], language: str) -> list[WordTokens]:
        """Split text tokens into words and punctuation marks, each with its leading space.

        Follows whisper/tokenizer.py: a language with spaces is split at them and around
        punctuation, one without at every character. A character is never cut: tokens that spell
        parts of one stay together. The texts joined are `decode(tokens)`.
        """
        parts = self._split_on_characters(tokens)
        if language in UNSPACED_LANGUAGES:
            return parts
        words: list[WordTokens] = []
        for part in parts:
            # whitespace alone counts as punctuation, as in the original
            stands_alone = part.text.startswith(" ") or part.text.strip() in string.punctuation
            if stands_alone or not words:
                words.append(part)
            else:
                last = words[-1]
                words[-1] = WordTokens(last.text + part.text, last.tokens + part.tokens)
        return words

    def _split_on_characters(self, tokens: Sequence[int]) -> list[WordTokens]:
        """Split into the shortest runs of tokens that spell whole characters."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        parts: list[WordTokens] = []
        text, run = "", []
        for token in tokens:
            if token >= self.eot:
                continue
            run.append(token)
            text += decoder.decode(self._bytes[token])
            is_whole = not decoder.getstate()[0]
            if is_whole:
                parts.append(WordTokens(text, tuple(run)))
                text, run = "", []
        if run and (text or not parts):
            parts.append(WordTokens(text, tuple(run)))
        elif run:  # half a character: its tokens count for the last word, but spell nothing
            last = parts[-1]
            parts[-1] = WordTokens(last.text, last.tokens + tuple(run))
        return parts

    def start_sequence(
        self, language: str | None, task: Task, with_timestamps: bool = True
    ) -> tuple[int, ...]:
        """Return the tokens that a transcript starts with.

        Args:
            language: one of `languages`; of no effect in an English-only model.
            task: of no effect in an English-only model.
            with_timestamps: False adds the token that asks for none.
        """
        sequence = [self.sot]
        if self.is_multilingual:
            assert language is not None
            assert self.transcribe is not None and self.translate is not None
            sequence.append(self.languages[language])
            sequence.append(self.transcribe if task is Task.TRANSCRIBE else self.translate)
        if not with_timestamps:
            sequence.append(self.no_timestamps)
        return tuple(sequence)


def byte_characters() -> dict[int, str]:
    """Return the printable character that stands for each byte in a byte-level vocabulary.

    The rule of GPT-2 (encoder.py: bytes_to_unicode): visible Latin-1 characters stand for
    themselves, the other bytes for the characters from U+0100 on, in order.
    """
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return {byte: chr(byte) for byte in visible} | {
        byte: chr(0x100 + n) for n, byte in enumerate(hidden)
    }
