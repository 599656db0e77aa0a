"""Runs what the scheduler decides on PyTorch's own operators: encodes, and decoder steps.

There is one kind of decoder step. A row brings the tokens that are not cached yet (its prefix at
first, later the token sampled last) and the draft's proposal, and a token is sampled after each of
those that may be the last to stand. A row without a proposal is a plain decode step; with one, the
draft is verified as in speculative decoding.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Rows
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from engine.api import Samples
from engine.batching.counters import Counters
from engine.batching.draft_verification import accept_sampled
from engine.batching.sequence import Sequence
from engine.batching.step_input import StepInput, make_step_input
from engine.decoding.rules import (
    Rules,
    RuleState,
    SampledToken,
    language_probabilities,
    no_speech_probability,
    sample,
)
from engine.decoding.tokenizer import Tokenizer
from engine.model.attention import Attention, DecoderRow
from engine.model.folded_tail import KeptPositions
from engine.model.mel import LogMel
from engine.model.whisper import Whisper


@dataclass(slots=True)
class StepBatch:
    """The input of one decoder step, laid out for the device."""

    step_inputs: list[StepInput] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    rows: list[DecoderRow] = field(default_factory=list)
    # indices into tokens: those whose logits are needed raw, then those a token is sampled after
    probed: list[int] = field(default_factory=list)
    sampled: list[int] = field(default_factory=list)


class EagerRunner:
    """Runs one model. Called by one thread."""

    def __init__(
        self,
        model: Whisper,
        attention: Attention,
        rules: Rules,
        tokenizer: Tokenizer,
        device: torch.device,
        counters: Counters,
    ) -> None:
        self._model = model
        self._attention = attention
        self._rules = rules
        self._tokenizer = tokenizer
        self._device = device
        self._counters = counters
        self._log_mel = LogMel(model.config.num_mels, device)
        self._language_codes = list(tokenizer.languages)
        self._language_ids = torch.tensor(
            list(tokenizer.languages.values()), dtype=torch.int64, device=device
        )
        # alignment queries of sequences that want word times, one for each cached position;
        # an entry lives from the first step to `forget`
        self._queries: dict[int, list[list[Tensor]]] = {}

    def encode(self, sequences: Rows[Sequence], audio: Rows[Samples]) -> None:
        """Encode windows together and store their cross-attention K/V in their pages."""
        for _ in self.encode_in_pieces(sequences, audio):
            pass

    def encode_in_pieces(self, sequences: Rows[Sequence], audio: Rows[Samples]) -> Iterator[int]:
        """Encode a layer at a time: see `engine.batching.encoder_threads.EncodeInPieces`.

        Several may be under way, in one thread or in several, beside one that runs the decoder.
        """
        kept_positions = [sequence.kept for sequence in sequences]
        num_layers = self._model.config.encoder_layers
        with torch.inference_mode():
            # a copy, since a caller's array may be read-only or run backwards
            windows = [torch.from_numpy(np.array(s)).to(self._device) for s in audio]
            x = self._embed(windows, kept_positions)
        for number in range(num_layers):
            yield num_layers - number + 2
            with torch.inference_mode():
                self._attention.plan_encoder(kept_positions)  # others may have planned theirs
                x = self._model.encode_layer(number, x, self._attention)
        yield 2
        with torch.inference_mode():
            kv = self._model.project_cross(self._model.finish_encoding(x))
        yield 1
        with torch.inference_mode():
            self._attention.plan_encoder(kept_positions)
            self._attention.store_cross([sequence.cross_pages for sequence in sequences], kv)

    def _embed(self, windows: list[Tensor], kept_positions: list[KeptPositions]) -> Tensor:
        if self._device.type == "cpu":
            # one by one: a CPU gains nothing from more, and what a window becomes would depend on
            # the length of the others
            parts = [
                self._model.embed_audio(self._log_mel([window]), [kept])
                for window, kept in zip(windows, kept_positions, strict=True)
            ]
            return parts[0] if len(parts) == 1 else torch.cat(parts)
        return self._model.embed_audio(self._log_mel(windows), kept_positions)

    def step(self, sequences: Rows[Sequence]) -> None:
        """Run the decoder once and append to each sequence the tokens sampled.

        A sequence whose language is unknown gets its language_probabilities instead.
        """
        batch = self._lay_out(sequences)
        with torch.inference_mode():
            device = self._device
            self._attention.plan_decoder(batch.rows)
            queries: list[Tensor] | None = [] if self._wants_queries(sequences) else None
            x = self._model.decode(
                torch.tensor(batch.tokens, device=device),
                torch.tensor(batch.positions, device=device),
                self._attention,
                queries,
            )
            wanted = batch.probed + batch.sampled
            if wanted != list(range(len(batch.tokens))):
                x = x[torch.tensor(wanted, device=device)]
            logits = self._model.compute_logits(x)
            num_probed = len(batch.probed)
            if num_probed:
                self._probe(batch, logits[:num_probed])
            tokens, logprobs = [], []
            if batch.sampled:
                sampled = self._sample(batch, logits[num_probed:])
                tokens, logprobs = sampled.tokens.tolist(), sampled.logprobs.tolist()
        self._counters.num_passes += 1
        self._counters.num_rows += len(sequences)
        self._keep(batch, tokens, logprobs)
        if queries:
            self._keep_queries(batch, queries)

    def read_alignment(self, sequence: Sequence) -> Tensor:
        """Return the alignment heads' attention logits of a finished sequence.

        Returns:
            (heads, T, num_full) float32, T the positions read: prefix, then sampled tokens; the
            last sampled token's position is there only if a later token was sampled.
        """
        return align(self._model, self._attention, sequence, self._queries[sequence.id])

    def forget(self, sequence: Sequence) -> None:
        """Drop what is kept of a sequence outside the pools."""
        self._queries.pop(sequence.id, None)

    def _lay_out(self, sequences: Rows[Sequence]) -> StepBatch:
        batch = StepBatch()
        for sequence in sequences:
            step_input = make_step_input(sequence)
            start = len(batch.tokens)
            batch.step_inputs.append(step_input)
            batch.tokens += step_input.tokens
            batch.positions += range(
                step_input.position, step_input.position + len(step_input.tokens)
            )
            batch.rows.append(
                DecoderRow(
                    len(step_input.tokens),
                    step_input.position,
                    sequence.self_pages,
                    sequence.cross_pages,
                    sequence.kept,
                )
            )
            if step_input.sot is not None:
                batch.probed.append(start + step_input.sot)
            batch.sampled += range(start + step_input.first_sampled, start + len(step_input.tokens))
        return batch

    def _probe(self, batch: StepBatch, logits: Tensor) -> None:
        """Read no-speech and language probabilities at the start of transcript."""
        probed = [
            step_input.sequence for step_input in batch.step_inputs if step_input.sot is not None
        ]
        silence = no_speech_probability(logits, self._tokenizer.no_speech).tolist()
        for row, (sequence, probability) in enumerate(zip(probed, silence, strict=True)):
            sequence.no_speech_probability = probability
            if sequence.needs_language:
                languages = language_probabilities(logits[row : row + 1], self._language_ids)
                sequence.language_probabilities = dict(
                    zip(self._language_codes, languages[0].tolist(), strict=True)
                )

    def _sample(self, batch: StepBatch, logits: Tensor) -> SampledToken:
        state = self._rule_state(batch.step_inputs)
        step_inputs = [
            step_input
            for step_input in batch.step_inputs
            for _ in step_input.tokens[step_input.first_sampled :]
        ]
        if not any(step_input.sequence.temperature for step_input in step_inputs):
            return self._rules.sample_greedy(logits, state)
        samples = []
        masked = self._rules.mask(logits, state)
        for row, step_input in enumerate(step_inputs):
            sequence = step_input.sequence
            # each row has noise of its own, for batch invariance
            seed = (sequence.seed << 20) + (sequence.attempt << 10) + len(sequence.tokens)
            generator = torch.Generator(self._device).manual_seed(seed)
            temperature = torch.tensor([sequence.temperature], device=self._device)
            samples.append(sample(masked[row : row + 1], temperature, generator))
        return SampledToken(
            torch.cat([sampled.tokens for sampled in samples]),
            torch.cat([sampled.logprobs for sampled in samples]),
        )

    def _rule_state(self, step_inputs: Rows[StepInput]) -> RuleState:
        """Return the rules' state before each sampled token."""
        begin = self._rules.timestamp_begin
        is_first: list[bool] = []
        last_is_time: list[bool] = []
        previous_is_time: list[bool] = []
        last_time: list[int] = []
        for step_input in step_inputs:
            if step_input.first_sampled == len(step_input.tokens):
                continue
            sampled = step_input.sequence.tokens
            last = bool(sampled) and sampled[-1] >= begin
            previous = len(sampled) < 2 or sampled[-2] >= begin
            time = next((token for token in reversed(sampled) if token >= begin), begin - 1)
            first = not sampled
            for token in (*step_input.proposal, None):
                is_first.append(first)
                last_is_time.append(last)
                previous_is_time.append(previous)
                last_time.append(time)
                if token is not None:
                    previous = last or first
                    first, last = False, token >= begin
                    time = token if last else time
        device = self._device
        return RuleState(
            torch.tensor(is_first, device=device),
            torch.tensor(last_is_time, device=device),
            torch.tensor(previous_is_time, device=device),
            torch.tensor(last_time, device=device),
        )

    def _keep(self, batch: StepBatch, tokens: list[int], logprobs: list[float]) -> None:
        """Accept what was sampled, up to the first token where the draft was wrong."""
        at = 0
        for step_input in batch.step_inputs:
            sequence = step_input.sequence
            sequence.num_steps += 1
            num_sampled = len(step_input.tokens) - step_input.first_sampled
            if not num_sampled:  # only the start of transcript was read
                sequence.num_cached += len(step_input.tokens)
                continue
            kept = slice(at, at + num_sampled)
            accept_sampled(
                sequence,
                step_input.proposal,
                tokens[kept],
                logprobs[kept],
                self._rules,
                self._counters,
            )
            at += num_sampled

    def _wants_queries(self, sequences: Rows[Sequence]) -> bool:
        return any(sequence.word_times for sequence in sequences)

    def _keep_queries(self, batch: StepBatch, queries: list[Tensor]) -> None:
        start = 0
        for step_input in batch.step_inputs:
            sequence = step_input.sequence
            if sequence.word_times:
                if step_input.position == 0:
                    self._queries[sequence.id] = []
                # of a draft, only what was accepted; a loop that was cut off leaves less than none
                count = max(sequence.num_cached - step_input.position, 0)
                self._queries[sequence.id].append(
                    [layer[start : start + count].clone() for layer in queries]
                )
            start += len(step_input.tokens)


def align(
    model: Whisper, attention: Attention, sequence: Sequence, steps: Rows[Rows[Tensor]]
) -> Tensor:
    """Compute the alignment heads' attention logits from the queries of a sequence's steps.

    Args:
        steps: of each step and each layer of `Whisper.alignment_heads`, (positions, heads, D).

    Returns:
        (heads, T, num_full) float32, T positions of all steps.
    """
    with torch.inference_mode():
        scale = model.config.head_dim**-0.5
        parts = []
        for n, (layer, heads) in enumerate(model.alignment_heads.items()):
            q = torch.cat([layers[n] for layers in steps]).transpose(0, 1)  # (heads, T, D)
            k = attention.read_cross_keys(
                layer, heads, sequence.cross_pages, sequence.kept.num_full
            )
            parts.append(q.float() @ k.float().transpose(1, 2) * scale)
        return torch.cat(parts)
