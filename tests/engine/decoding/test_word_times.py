"""Word times: the pieces against transformers', the whole against a pass without timestamps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.api import Task, Word
from engine.decoding.segments import SegmentTokens, parse_segments
from engine.decoding.tokenizer import Tokenizer, WordTokens
from engine.decoding.word_times import SAMPLES_PER_FRAME, align_words, median_filter, warp

EOT, TIME = 26, 30
MARKS = {20: ".", 21: ",", 22: ' "', 23: '"'}


class SpelledTokenizer:
    """Each token below 20 is a word of one letter; some above are punctuation."""

    eot, timestamp_begin = EOT, TIME

    def spell(self, token: int) -> str:
        return MARKS.get(token, " " + chr(ord("a") + token))

    def decode_words(self, tokens: Any, language: str) -> list[WordTokens]:
        return [WordTokens(self.spell(token), (token,)) for token in tokens]


@pytest.fixture
def tokenizer() -> Tokenizer:
    return SpelledTokenizer()  # type: ignore[return-value]


@pytest.mark.parametrize("seed", range(20))
def test_warping_finds_the_path_of_the_reference(seed: int) -> None:
    reference = pytest.importorskip("transformers.models.whisper.generation_whisper")
    generator = np.random.default_rng(seed)
    matrix = generator.normal(size=(1 + seed, int(generator.integers(1, 120))))
    rows, columns = reference._dynamic_time_warping(-matrix)
    enters = np.pad(np.diff(rows), (1, 0), constant_values=1).astype(bool)
    assert warp(matrix).tolist() == columns[enters].tolist()


@pytest.mark.parametrize("num_frames", [1, 3, 4, 7, 50])
def test_median_equals_the_reference(num_frames: int) -> None:
    reference = pytest.importorskip("transformers.models.whisper.generation_whisper")
    x = torch.randn(3, 4, num_frames, generator=torch.Generator().manual_seed(num_frames))
    assert torch.equal(median_filter(x), reference._median_filter(x, 7))


def attend(frames: list[int], num_frames: int) -> torch.Tensor:
    """Make logits of two heads where row t attends from frames[t] to where the next row does."""
    ends = [*frames[1:], num_frames]
    logits = torch.zeros(2, len(frames), num_frames)
    for row, (start, end) in enumerate(zip(frames, ends, strict=True)):
        logits[:, row, start:end] = 8
    return logits


def align(tokens: list[int], attention: torch.Tensor, end: int, start: int = 0) -> list[Any]:
    tokenizer: Any = SpelledTokenizer()
    segments = parse_segments(tokens, tokenizer, start, end)
    return align_words(attention, segments, [0.0] * len(tokens), tokenizer, "en", start, end)


def test_words_begin_where_attention_moves_on() -> None:
    # time, a, b, c, time, end
    attention = attend([0, 10, 30, 55, 80, 95], 100)
    (words,) = align([TIME, 0, 1, 2, TIME + 90], attention, 32_000, start=0)
    assert [w.text for w in words] == [" a", " b", " c"]
    starts = [w.start // SAMPLES_PER_FRAME for w in words]
    # the path begins at the first frame, so the first word does
    assert starts == [0, 30, 55]
    # and the end token's row ends the last word
    assert abs(words[2].end // SAMPLES_PER_FRAME - 95) <= 15


def test_times_count_from_the_window_start() -> None:
    attention = attend([0, 10, 30, 50], 60)
    here = align([TIME, 0, 1], attention, 60 * SAMPLES_PER_FRAME)
    there = align([TIME, 0, 1], attention, 5_000 + 60 * SAMPLES_PER_FRAME, start=5_000)
    assert [(w.start + 5_000, w.end + 5_000) for w in here[0]] == [
        (w.start, w.end) for w in there[0]
    ]


def test_frames_after_the_audio_are_ignored() -> None:
    attention = attend([0, 10, 30, 50], 60)
    noisy = torch.cat([attention, torch.full((2, 4, 40), 20.0)], dim=2)
    assert align([TIME, 0, 1], noisy, 60 * SAMPLES_PER_FRAME) == align(
        [TIME, 0, 1], attention, 60 * SAMPLES_PER_FRAME
    )


def test_punctuation_joins_its_word() -> None:
    #                 time  "  a  ,  b  .  "
    tokens = [TIME, 22, 0, 21, 1, 20, 23]
    attention = attend([0, 4, 8, 20, 24, 40, 44, 48], 60)
    (words,) = align(tokens, attention, 60 * SAMPLES_PER_FRAME)
    assert [w.text for w in words] == [' " a,', ' b."']


def test_probability_is_the_mean_over_the_tokens_of_a_word() -> None:
    tokenizer: Any = SpelledTokenizer()
    tokens = [0, 20, 1]
    segments = parse_segments(tokens, tokenizer, 0, 16_000)
    logprobs = [float(np.log(p)) for p in (0.5, 0.25, 1.0)]
    (words,) = align_words(
        attend([0, 10, 20, 40], 50), segments, logprobs, tokenizer, "en", 0, 16_000
    )
    assert [w.probability for w in words] == pytest.approx([0.375, 1.0])


def test_last_word_lasts_to_the_window_end_without_an_end_token() -> None:
    (words,) = align([0, 1], attend([0, 20], 50), 50 * SAMPLES_PER_FRAME)
    assert words[-1].end == 50 * SAMPLES_PER_FRAME


def test_pause_before_a_segment_is_not_given_to_its_first_word() -> None:
    # four short words, four seconds of silence, one more: "e" attends to all of the silence
    tokens = [TIME, 0, 1, 2, 3, TIME + 60, TIME + 250, 4, TIME + 270]
    attention = attend([0, 0, 15, 30, 45, 60, 61, 62, 270, 275], 280)
    first, second = align(tokens, attention, 280 * SAMPLES_PER_FRAME)
    assert second[0].end - second[0].start <= 16_000
    assert second[0].start >= first[-1].end


def test_nothing_said_has_no_words(tokenizer: Tokenizer) -> None:
    assert align([TIME, TIME], torch.zeros(2, 3, 50), 16_000) == []


def test_attention_alike_for_all_tokens_gives_finite_times() -> None:
    (words,) = align([0, 1, 2], torch.zeros(2, 4, 50), 50 * SAMPLES_PER_FRAME)
    assert len(words) == 3


@given(
    tokens=st.lists(st.integers(0, 60), max_size=30),
    duration=st.integers(1, 40_000),
    start=st.integers(0, 10**8),
    seed=st.integers(0, 1000),
    has_end=st.booleans(),
)
@settings(max_examples=300, deadline=None)
def test_words_are_ordered_inside_the_window_and_spell_the_text(
    tokens: list[int], duration: int, start: int, seed: int, has_end: bool
) -> None:
    generator = torch.Generator().manual_seed(seed)
    num_rows = len(tokens) + has_end
    attention = torch.randn(2, num_rows, duration // SAMPLES_PER_FRAME + 3, generator=generator) * 5
    tokenizer: Any = SpelledTokenizer()
    end = start + duration
    segments = parse_segments(tokens, tokenizer, start, end)
    logprobs = [-0.5] * len(tokens)
    aligned = align_words(attention, segments, logprobs, tokenizer, "en", start, end)
    assert len(aligned) == len(segments)
    for segment, words in zip(segments, aligned, strict=True):
        text = "".join(tokenizer.spell(token) for token in segment.tokens)
        assert "".join(w.text for w in words) == text
    everything = [w for words in aligned for w in words]
    for word in everything:
        assert start <= word.start < word.end <= end
        assert 0 <= word.probability <= 1
    for before, after in zip(everything, everything[1:], strict=False):
        assert before.start <= after.start
        if duration >= SAMPLES_PER_FRAME * 40:  # room for every word
            assert before.end <= after.start


@pytest.mark.model
def test_words_of_a_decode_equal_those_of_a_step_without_timestamps(
    base: Any, reference: Callable[[Any], Any], read_clips: list[Any]
) -> None:
    """openai-whisper times words by decoding the text again, without timestamps.

    We read the rows of the decode with timestamps; both from transformers' attention weights.
    """
    from engine.model.mel import LogMel

    whisper, tokenizer = reference(base), base.tokenizer
    start = tokenizer.start_sequence("en", Task.TRANSCRIBE)
    differences: list[int] = []
    for clip in read_clips[::24]:
        audio = clip.read()
        with torch.no_grad():
            encoded = whisper.model.encoder(LogMel(80)([torch.from_numpy(audio)]).dense())

            def attend(prefix: list[int], tokens: list[int], encoded: Any = encoded) -> Any:
                output = whisper(
                    encoder_outputs=encoded,
                    decoder_input_ids=torch.tensor([[*prefix, *tokens]]),
                    output_attentions=True,
                )
                heads = [
                    output.cross_attentions[a.layer][0, a.head] for a in base.config.alignment_heads
                ]
                # a softmax's logarithm is its logits but for a constant
                return torch.stack(heads).clamp(min=1e-30).log()[:, len(prefix) - 1 :]

            def align(attention: Any, segments: Any, n: int, end: int = len(audio)) -> list[Word]:
                words = align_words(attention, segments, [0.0] * n, tokenizer, "en", 0, end)
                return [word for words in words for word in words]

            tokens = whisper.generate(
                encoder_outputs=encoded, return_timestamps=True, language="en", task="transcribe"
            )[0].tolist()
            tokens = [t for t in tokens if t < tokenizer.eot or t >= tokenizer.timestamp_begin]
            segments = parse_segments(tokens, tokenizer, 0, len(audio))
            ours = align(attend(list(start), tokens), segments, len(tokens))

            text = [t for t in tokens if t < tokenizer.eot]
            shifted, first = [], 0
            for s in segments:  # the same segments over the tokens without timestamps
                places = tuple(range(first, first + len(s.tokens)))
                shifted.append(SegmentTokens(s.start, s.end, s.is_open, places, s.tokens))
                first += len(places)
            theirs = align(attend([*start, tokenizer.no_timestamps], text), shifted, len(text))
        assert [w.text for w in ours] == [w.text for w in theirs]
        for a, b in zip(ours, theirs, strict=True):
            differences += [abs(a.start - b.start), abs(a.end - b.end)]
    assert len(differences) > 100
    assert np.median(differences) <= 0.02 * 16_000
    assert np.percentile(differences, 95) <= 0.1 * 16_000
