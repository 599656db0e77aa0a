"""When each word was spoken, from the cross-attention of the heads that follow the audio.

Follows whisper/timing.py: attention normalised over tokens, smoothed by a median over frames,
averaged over heads; dynamic time warping finds the monotonic path of tokens through frames; tokens
make words. One frame is one encoder position, 20 ms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from engine.api import Word
from engine.decoding.segments import SegmentTokens
from engine.decoding.tokenizer import Tokenizer
from engine.model.folded_tail import SAMPLES_PER_POSITION

SAMPLES_PER_FRAME = SAMPLES_PER_POSITION
MEDIAN_WIDTH = 7  # frames (whisper/timing.py)
# marks before a word and after one (whisper/timing.py: merge_punctuations)
OPENING_PUNCTUATION = "\"'“¿([{-"
CLOSING_PUNCTUATION = "\"'.。,，!！?？:：”)]}、"
SENTENCE_END_MARKS = ".。!！?？"
MAX_TYPICAL_DURATION = (
    11_200  # 0.7 s: the median word counts as no longer than this (whisper/timing.py)
)
MAX_OVERHANG = 8_000  # 0.5 s: how far a word may extend beyond its segment (whisper/timing.py)

# comparators that bring the median of seven values to place 3 (N. Devillard, "Fast median search")
MEDIAN_NETWORK: tuple[tuple[int, int], ...] = (
    (0, 5),
    (0, 3),
    (1, 6),
    (2, 4),
    (0, 1),
    (3, 5),
    (2, 6),
)
MEDIAN_NETWORK += ((2, 3), (3, 6), (4, 5), (1, 4), (1, 3), (3, 4))


@dataclass(slots=True)
class _TimedWord:
    """A word while its times are being put right."""

    text: str
    start: int
    end: int
    probabilities: list[float]

    @property
    def duration(self) -> int:
        return self.end - self.start


def find_token_starts(attention: Tensor, num_frames: int, rows: Sequence[int]) -> list[int]:
    """Find the frame where each of some tokens begins.

    Args:
        attention: (heads, T, F) attention logits of the alignment heads; a row is a position that
            predicts a token.
        num_frames: of the audio; the frames behind it have no part in the softmax.
        rows: of the tokens to find, ascending. The others help to normalise: timestamps are left
            out of the path, where they would take the pauses that the words around them own.

    Returns:
        As many frames as rows, ascending from 0.
    """
    weights = attention[:, :, :num_frames].float().softmax(dim=2)
    deviation, mean = torch.std_mean(weights, dim=1, keepdim=True, correction=0)
    # a frame that all tokens attend to equally carries no information: its weights are 0, not NaN
    weights = (weights[:, list(rows)] - mean) / deviation.clamp(min=1e-12)
    matrix = median_filter(weights).mean(dim=0)
    starts = warp(matrix.cpu().double().numpy())
    return [int(start) for start in starts]


def median_filter(x: Tensor) -> Tensor:
    """Compute the median of 7 along the last dimension, mirrored at its ends.

    Where there are too few frames to mirror, x comes back as it is (whisper/timing.py).
    """
    half = MEDIAN_WIDTH // 2
    num_frames = x.shape[-1]
    if num_frames <= half:
        return x
    padded = F.pad(x, (half, half), mode="reflect")
    values = [padded[..., n : n + num_frames] for n in range(MEDIAN_WIDTH)]
    # a network of minima and maxima: several times as fast as sorting
    for low, high in MEDIAN_NETWORK:
        a, b = values[low], values[high]
        values[low], values[high] = torch.minimum(a, b), torch.maximum(a, b)
    return values[half]


def warp(matrix: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Find the path through a matrix along which the sum is greatest.

    The path goes from the first to the last corner by steps of one row, one column or both: the
    dynamic time warping of whisper/timing.py. A row at a time instead of a cell at a time: inside
    a row, reaching column j costs the row's running sum plus the least of (cost of entering at
    column k) - (running sum before k) over all k up to j.

    Args:
        matrix: (T, F).

    Returns:
        (T,): the column at which the path enters each row.
    """
    T, num_frames = matrix.shape
    reached = np.full((T + 1, num_frames), np.inf)  # cost of the best path to each cell, row 0 void
    entry = np.empty((T, num_frames))  # of entering a row there, less the row's sum before it
    for i in range(T):
        entering = reached[i].copy()  # from the cell above
        np.minimum(entering[1:], reached[i, :-1], out=entering[1:])  # or the one before that
        if i == 0:
            entering[0] = 0.0
        running = np.cumsum(-matrix[i])
        entry[i, 0] = entering[0]
        np.subtract(entering[1:], running[:-1], out=entry[i, 1:])
        np.add(running, np.minimum.accumulate(entry[i]), out=reached[i + 1])
    starts = np.empty(T, dtype=np.int64)
    column = num_frames - 1
    for i in range(T - 1, -1, -1):
        column = int(entry[i, : column + 1].argmin())
        starts[i] = column
        if column > 0 and reached[i, column - 1] < reached[i, column]:
            column -= 1
    return starts


def align_words(
    attention: Tensor,
    segments: Sequence[SegmentTokens],
    logprobs: Sequence[float],
    tokenizer: Tokenizer,
    language: str,
    start: int,
    end: int,
) -> list[tuple[Word, ...]]:
    """Compute the words of each segment with their times and probabilities.

    Args:
        attention: (heads, T, F) logits of the alignment heads, a frame each 20 ms, on any device.
            Row t is the position that predicts the t-th sampled token; one more, the position of
            the last sampled token, shows where the last word ends.
        segments: of a window, from `segments.parse_segments`.
        logprobs: of each sampled token.
        language: decides whether words are written with spaces.
        start, end: of the window, in samples from the start of the stream.

    Returns:
        For each segment its words, in order, each at least one sample long and inside the window.
        Their texts joined are the segment's.
    """
    places = [place for segment in segments for place in segment.places]
    if not places:
        return [() for _ in segments]
    assert places[-1] < attention.shape[1], (places[-1], attention.shape)
    num_frames = min(-(-(end - start) // SAMPLES_PER_FRAME), attention.shape[2])
    after = [places[-1] + 1] if places[-1] + 1 < attention.shape[1] else []
    frames = find_token_starts(attention, num_frames, places + after)
    times = [min(start + frame * SAMPLES_PER_FRAME, end) for frame in frames] + [end]
    timed = time_words(segments, times, logprobs, tokenizer, language)
    typical = median_duration([word for words in timed for word in words])
    for words in timed:
        shorten_at_sentence_ends(words, 2 * typical)
    timed = [merge_punctuation(words) for words in timed]
    last_end = start
    for segment, words in zip(segments, timed, strict=True):
        fit_segment(segment, words, typical, last_end)
        last_end = words[-1].end
    put_in_order([word for words in timed for word in words], start, end)
    return [
        tuple(
            Word(w.text, w.start, w.end, sum(w.probabilities) / len(w.probabilities)) for w in words
        )
        for words in timed
    ]


def time_words(
    segments: Sequence[SegmentTokens],
    times: Sequence[int],
    logprobs: Sequence[float],
    tokenizer: Tokenizer,
    language: str,
) -> list[list[_TimedWord]]:
    """Split segments into words, each of which lasts until the next token begins.

    Args:
        times: in samples, one for each token of all segments, and one for what comes after.
    """
    timed: list[list[_TimedWord]] = []
    first = 0  # of the word's tokens among those of all segments
    for segment in segments:
        words: list[_TimedWord] = []
        place = 0  # of the word's tokens among the segment's
        for word in tokenizer.decode_words(segment.tokens, language):
            places = segment.places[place : place + len(word.tokens)]
            place += len(places)
            after = first + len(places)
            probabilities = [math.exp(logprobs[place]) for place in places]
            words.append(_TimedWord(word.text, times[first], times[after], probabilities))
            first = after
        timed.append(words)
    return timed


def median_duration(words: Sequence[_TimedWord]) -> int:
    """Return how long a typical word lasts; words without duration do not count."""
    durations = [word.duration for word in words if word.duration > 0]
    return min(int(np.median(durations)), MAX_TYPICAL_DURATION) if durations else 0


def shorten_at_sentence_ends(words: Sequence[_TimedWord], longest: int) -> None:
    """Cut off the pause that is counted to a sentence's last mark or to the next first word."""
    for i in range(1, len(words)):
        word = words[i]
        if word.duration > longest:
            if word.text in SENTENCE_END_MARKS:
                word.end = word.start + longest
            elif words[i - 1].text in SENTENCE_END_MARKS:
                word.start = word.end - longest


def merge_punctuation(words: Sequence[_TimedWord]) -> list[_TimedWord]:
    """Join opening marks with the word after them, closing marks with the one before.

    The word keeps its own times: a mark takes none.
    """
    opened: list[_TimedWord] = []
    for word in reversed(words):
        if opened and word.text.startswith(" ") and word.text.strip() in OPENING_PUNCTUATION:
            following = opened[-1]
            following.text = word.text + following.text
            following.probabilities = word.probabilities + following.probabilities
        else:
            opened.append(word)
    merged: list[_TimedWord] = []
    for word in reversed(opened):
        if merged and not merged[-1].text.endswith(" ") and word.text in CLOSING_PUNCTUATION:
            merged[-1].text += word.text
            merged[-1].probabilities = merged[-1].probabilities + word.probabilities
        else:
            merged.append(word)
    return merged


def fit_segment(
    segment: SegmentTokens, words: Sequence[_TimedWord], typical: int, last_end: int
) -> None:
    """Shorten the words at both ends of a segment that reach over a pause.

    Args:
        typical: duration of the median word.
        last_end: where the last word before this segment ended.
    """
    first, last = words[0], words[-1]
    longest = 2 * typical
    second = words[1] if len(words) > 1 else None
    is_stretched = first.duration > longest or (
        second is not None and second.end - first.start > 2 * longest
    )
    if first.end - last_end > 4 * typical and is_stretched:
        if second is not None and second.duration > longest:
            boundary = max(second.start + second.duration // 2, second.end - longest)
            first.end = second.start = boundary
        first.start = max(first.start, first.end - longest)
    if first.start + MAX_OVERHANG < segment.start < first.end:
        first.start = min(first.end - typical, segment.start)
    if last.start < segment.end < last.end - MAX_OVERHANG:
        last.end = max(last.start + typical, segment.end)


def put_in_order(words: Sequence[_TimedWord], start: int, end: int) -> None:
    """Order words in time, each at least a frame long where the window allows it."""
    edge = start
    for word in words:
        word.start = max(word.start, edge)
        word.end = max(word.end, word.start + SAMPLES_PER_FRAME)
        edge = word.end
    edge = end
    for word in reversed(words):
        word.end = min(word.end, edge)
        word.start = max(min(word.start, word.end - 1), start)
        word.end = max(word.end, word.start + 1)
        edge = max(word.start, start + 1)
