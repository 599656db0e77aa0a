"""What the decoder is told ahead of a window: a stream's hotwords and the text before, as tokens.

Both seldom change from one window to the next, and both come from clients, who may send far more
than the decoder can be told. So each is encoded once, and only as much as may fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engine.decoding.tokenizer import Tokenizer

# A token of text has some four characters, and of 448 positions at most 223 tokens are told. A
# longer text begins at a space: its last tokens are the same.
MAX_TEXT_CHARACTERS = 4096
MAX_HOTWORD_CHARACTERS = 16_384  # of all hotwords that are looked at, in their order
NUM_TEXTS = 4  # whose prompts are kept: a final's second pass and partials have different ones


class PromptWriter:
    """Writes the prompts of one stream."""

    def __init__(
        self, tokenizer: Tokenizer, hotwords: Sequence[str] = (), max_positions: int = 448
    ) -> None:
        """Prepare; nothing is encoded yet.

        Args:
            max_positions: `ModelConfig.max_target_positions`.
        """
        self._tokenizer = tokenizer
        self._hotwords = list(_bounded(hotwords))
        self._max_tokens = max_positions // 2 - 1
        self._encoded: dict[str, list[int]] = {}  # hotwords, with their separators
        self._prompts: dict[str, tuple[int, ...]] = {}  # by previous text, the newest last

    def write(self, start: Sequence[int], previous_text: str = "") -> tuple[int, ...]:
        """Put what the decoder is to know in front of the tokens that a transcript starts with.

        At most half of the positions less one go to hotwords and previous text, as in
        whisper/decoding.py. Hotwords stand first, and may take half of that while there is previous
        text; those that do not fit are left out. Previous text is cut from the left.

        Args:
            start: from `Tokenizer.start_sequence`.

        Returns:
            start alone where there is nothing to know.
        """
        prompt = self._prompts.pop(previous_text, None)
        if prompt is None:
            prompt = self._encode(previous_text.strip())
        self._prompts[previous_text] = prompt
        if len(self._prompts) > NUM_TEXTS:
            del self._prompts[next(iter(self._prompts))]
        return (*prompt, *start)

    def _encode(self, text: str) -> tuple[int, ...]:
        previous = self._tokenizer.encode(" " + _end_of(text)) if text else []
        max_words = max(self._max_tokens // 2, self._max_tokens - len(previous))
        words: list[int] = []
        for hotword in self._hotwords:
            if len(words) == max_words:
                break
            tokens = self._encode_hotword(f", {hotword}" if words else f" {hotword}")
            if len(words) + len(tokens) <= max_words:
                words += tokens
        previous = previous[max(len(previous) - (self._max_tokens - len(words)), 0) :]
        if not words and not previous:
            return ()
        return (self._tokenizer.start_of_prev, *words, *previous)

    def _encode_hotword(self, text: str) -> list[int]:
        tokens = self._encoded.get(text)
        if tokens is None:
            tokens = self._encoded[text] = self._tokenizer.encode(text)
        return tokens


def _bounded(hotwords: Sequence[str]) -> Iterator[str]:
    """Leave out what is empty or cannot fit, and all that follows too many others."""
    left = MAX_HOTWORD_CHARACTERS
    for hotword in hotwords:
        word = hotword.strip()
        if not word or len(word) > MAX_TEXT_CHARACTERS:
            continue
        left -= len(word)
        if left < 0:
            return
        yield word


def _end_of(text: str) -> str:
    """Return the last words of a text."""
    if len(text) <= MAX_TEXT_CHARACTERS:
        return text
    end = text[-MAX_TEXT_CHARACTERS:]
    return end.partition(" ")[2].lstrip() or end
