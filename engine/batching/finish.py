"""Postprocess stopped sequences: write the Hypothesis, or fall back to a higher temperature."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor

from engine.api import Hypothesis, Segment
from engine.batching.counters import Counters
from engine.batching.loop import ModelRunner
from engine.batching.request import LastHypothesis, Request, set_language
from engine.batching.sequence import Sequence as Decode
from engine.config import EngineConfig
from engine.decoding.repetition import compression_ratio
from engine.decoding.segments import SegmentTokens, decode_segments, parse_segments
from engine.decoding.tokenizer import Tokenizer
from engine.decoding.word_times import align_words

logger = logging.getLogger(__name__)


class AligningRunner(ModelRunner, Protocol):
    """What finishing needs of a runner."""

    def read_alignment(self, sequence: Decode) -> Tensor: ...


class Finisher:
    """Finishes stopped sequences. Called by the engine's thread."""

    def __init__(
        self, config: EngineConfig, tokenizer: Tokenizer, runner: AligningRunner, counters: Counters
    ) -> None:
        self._config = config
        self._tokenizer = tokenizer
        self._runner = runner
        self._counters = counters

    def finish(self, request: Request) -> bool:
        """Answer a request whose sequence stopped; return False if it decodes on."""
        sequence = request.sequence
        if sequence.needs_language:
            self._set_language(request)
            return False
        self._counters.num_attempts += 1
        hypothesis = self._write(request)
        request.attempts.append(hypothesis)
        if self._is_failure(hypothesis) and self._try_again(request):
            return False
        chosen = self._best(request.attempts)
        if not chosen.temperature and not chosen.is_truncated:
            request.stream.last_hypothesis = LastHypothesis(chosen.start, chosen.tokens)
        request.on_done(chosen)
        return True

    def _set_language(self, request: Request) -> None:
        sequence = request.sequence
        assert sequence.language_probabilities is not None
        window = request.window
        request.detected_language = request.stream.language.observe(
            sequence.language_probabilities, len(window.audio), window.is_final
        )
        set_language(sequence, request.detected_language.language, self._tokenizer)

    def _write(self, request: Request) -> Hypothesis:
        sequence, window, detected_language = (
            request.sequence,
            request.window,
            request.detected_language,
        )
        assert detected_language is not None
        parsed = parse_segments(sequence.tokens, self._tokenizer, window.start, window.end)
        segments = decode_segments(parsed, self._tokenizer)
        if sequence.word_times:
            try:
                segments = self._align_words(request, parsed, segments)
            except torch.AcceleratorError:
                raise  # nothing works after that
            except Exception:
                # a text without word times is worth more than none
                logger.exception("words could not be aligned")
                self._counters.num_failures += 1
        text = "".join(segment.text for segment in segments)
        return Hypothesis(
            start=window.start,
            end=window.end,
            segments=segments,
            language=detected_language.language,
            language_probability=detected_language.probability,
            avg_logprob=sequence.avg_logprob,
            no_speech_probability=sequence.no_speech_probability,
            compression_ratio=compression_ratio(text),
            temperature=sequence.temperature,
            is_truncated=sequence.is_truncated,
            tokens=tuple(sequence.tokens),
        )

    def _align_words(
        self,
        request: Request,
        parsed: Sequence[SegmentTokens],
        segments: Sequence[Segment],
    ) -> tuple[Segment, ...]:
        sequence, window, detected_language = (
            request.sequence,
            request.window,
            request.detected_language,
        )
        assert detected_language is not None
        # the row that predicts the first token is the prefix's last
        attention = self._runner.read_alignment(sequence)[:, len(sequence.prefix) - 1 :]
        words = align_words(
            attention,
            parsed,
            sequence.logprobs,
            self._tokenizer,
            detected_language.language,
            window.start,
            window.end,
        )
        written = [
            w for p, w in zip(parsed, words, strict=True) if self._tokenizer.decode(p.tokens)
        ]
        return tuple(
            replace(segment, words=w) for segment, w in zip(segments, written, strict=True)
        )

    def _is_failure(self, hypothesis: Hypothesis) -> bool:
        """Return whether a text loops or is improbable, as whisper/transcribe.py does."""
        config = self._config
        is_improbable = hypothesis.avg_logprob < config.min_avg_logprob
        if is_improbable and hypothesis.no_speech_probability > config.max_no_speech_probability:
            return False  # there is no speech: another attempt would only hallucinate again
        return (
            is_improbable
            or hypothesis.is_truncated
            or hypothesis.compression_ratio > config.max_compression_ratio
        )

    def _try_again(self, request: Request) -> bool:
        """Decode a final again at the next temperature, on the same cross-attention K/V."""
        sequence = request.sequence
        temperatures = request.stream.options.temperatures
        if not request.window.is_final or sequence.attempt + 1 >= len(temperatures):
            return False
        self._runner.forget(sequence)
        sequence.restart(temperatures[sequence.attempt + 1])
        return True

    def _best(self, attempts: list[Hypothesis]) -> Hypothesis:
        """Return the last attempt if it is good, else the most probable that does not loop."""
        if not self._is_failure(attempts[-1]):
            return attempts[-1]
        limit = self._config.max_compression_ratio
        calm = [a for a in attempts if a.compression_ratio <= limit and not a.is_truncated]
        return max(calm or attempts, key=lambda a: a.avg_logprob)
