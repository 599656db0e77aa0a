"""Runs what the scheduler decides, on a GPU, without waiting for it.

Each step is launched before the one before it is read: only the device knows the last token of a
sequence when the sequence's next step is launched. So a sequence may take part in one step too
many, whose result is dropped, and its draft proposes what should follow the tokens in flight.
"""

from __future__ import annotations

from collections.abc import Sequence as Rows
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from engine.api import Samples
from engine.batching.counters import Counters
from engine.batching.draft_verification import accept_sampled
from engine.batching.runner import align
from engine.batching.sequence import Phase, Sequence
from engine.batching.step_input import make_step_input
from engine.cuda.batch import KEEP, Row
from engine.cuda.launch import Done, Launched, read_results
from engine.decoding.rules import Rules
from engine.decoding.tokenizer import Tokenizer
from engine.model.attention import Attention
from engine.model.whisper import Whisper

if TYPE_CHECKING:  # they import Triton; the runner's own logic is tested without
    from engine.cuda.decoder_graphs import DecoderGraphs
    from engine.cuda.encoder_graphs import EncoderGraphs
    from engine.cuda.paged_attention import Pools

NUM_SEEDS = 1 << 22  # the kernel makes room for positions below it


@dataclass(slots=True, eq=False)
class Slot:
    """A sequence that has a slot, from its first step to its end or its next attempt."""

    index: int  # of the device's tables
    # tokens proposed in the step that is not read yet; None while none is in flight
    proposed: int | None = None
    # alignment queries of each step read so far, for sequences that want word times
    queries: list[list[Tensor]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Entry:
    """One sequence's part of a step."""

    sequence: Sequence
    slot: Slot
    first: int  # of its tokens in the step
    count: int
    first_sampled: int
    proposal: Rows[int]
    probe: int
    queries: list[Tensor] | None  # of all its tokens, by layer
    languages: Tensor | None  # probabilities at the probe, on their way to the host


@dataclass(frozen=True, slots=True)
class InFlight:
    """A step that is launched and not read."""

    launched: Launched
    entries: list[Entry]


class CudaRunner:
    """Runs one model. Called by one thread. Implements `engine.batching.loop.ModelRunner`."""

    def __init__(
        self,
        model: Whisper,
        attention: Attention,
        pools: Pools,
        graphs: DecoderGraphs,
        encoder: EncoderGraphs,
        rules: Rules,
        tokenizer: Tokenizer,
        counters: Counters,
    ) -> None:
        """Drive graphs and an encoder that are captured.

        Args:
            attention: reads the pools, for word times.
        """
        self._model = model
        self._attention = attention
        self._pools = pools
        self._graphs = graphs
        self._encoder = encoder
        self._rules = rules
        self._tokenizer = tokenizer
        self._counters = counters
        self._tables = np.zeros(tuple(pools.tables.shape), dtype=np.int32)
        self._has_new_tables = False
        self._free_slots = list(range(pools.num_slots))
        self._slots: dict[int, Slot] = {}  # by sequence id
        # by sequence id, until its first step: when its K/V are there
        self._encoded: dict[int, Done] = {}
        self._encoding: Done | None = None
        self._in_flight: InFlight | None = None
        self._language_codes = list(tokenizer.languages)
        self._language_ids = torch.tensor(
            list(tokenizer.languages.values()), dtype=torch.int64, device=pools.device
        )

    def encode(self, sequences: Rows[Sequence], audio: Rows[Samples]) -> Done:
        """Start to encode windows together; return when it will be over."""
        self._encoding = self._encoder.encode(
            audio,
            [sequence.kept for sequence in sequences],
            [sequence.cross_pages for sequence in sequences],
            None if self._in_flight is None else self._in_flight.launched.done,
        )
        for sequence in sequences:
            self._encoded[sequence.id] = self._encoding
        return self._encoding

    def step(self, sequences: Rows[Sequence]) -> None:
        """Launch a step of those that are ready, then read the step before it.

        A sequence that needs its language gets its language_probabilities.
        """
        ready = [sequence for sequence in sequences if self._is_ready(sequence)]
        started = self._start(ready) if ready else None
        before, self._in_flight = self._in_flight, started
        if before is not None:
            self._read(before)
        elif started is None and self._encoding is not None:
            self._encoding.wait()  # nothing else to do

    def read_alignment(self, sequence: Sequence) -> Tensor:
        """Return the alignment heads' attention logits of a finished sequence.

        Returns:
            (heads, T, num_full) float32, T the positions read.
        """
        with torch.cuda.stream(self._graphs.stream):
            return align(
                self._model, self._attention, sequence, self._slots[sequence.id].queries
            ).cpu()

    def forget(self, sequence: Sequence) -> None:
        """Drop what is kept of a sequence outside the pools."""
        slot = self._slots.pop(sequence.id, None)
        if slot is not None:
            # a step in flight may still use the slot; the next owner's step comes after it
            self._free_slots.append(slot.index)
        if sequence.phase is Phase.DONE:
            self._encoded.pop(sequence.id, None)

    def _is_ready(self, sequence: Sequence) -> bool:
        encoded = self._encoded.get(sequence.id)
        if encoded is not None:
            if not encoded.is_over():
                return False
            del self._encoded[sequence.id]
        slot = self._slots.get(sequence.id)
        if slot is None or slot.proposed is None:
            return not sequence.is_stopped
        return not sequence.needs_language  # its next tokens depend on the host

    def _start(self, sequences: Rows[Sequence]) -> InFlight:
        rows: list[Row] = []
        members: list[tuple[Sequence, Slot, Rows[int], int]] = []
        num_free = self._graphs.max_tokens
        for sequence in sequences:
            slot = self._slots.get(sequence.id) or self._assign_slot(sequence)
            row, proposal = self._make_row(sequence, slot)
            if len(row.tokens) > num_free:
                continue  # in the next step
            num_free -= len(row.tokens)
            rows.append(row)
            members.append((sequence, slot, proposal, row.first_sampled))
        launched = self._graphs.launch(rows, self._tables if self._has_new_tables else None)
        self._has_new_tables = False
        entries = []
        for row, first, (sequence, slot, proposal, first_sampled) in zip(
            rows, launched.firsts, members, strict=True
        ):
            slot.proposed = len(proposal)
            share = slice(first, first + len(row.tokens))
            entries.append(
                Entry(
                    sequence,
                    slot,
                    first,
                    len(row.tokens),
                    first_sampled,
                    proposal,
                    row.probe,
                    self._keep_queries(launched, share) if sequence.word_times else None,
                    self._ask_language(launched, first + row.probe)
                    if sequence.needs_language
                    else None,
                )
            )
        self._counters.num_passes += 1
        self._counters.num_graph_passes += launched.is_graph
        self._counters.num_rows += len(rows)
        return InFlight(launched, entries)

    def _assign_slot(self, sequence: Sequence) -> Slot:
        slot = Slot(self._free_slots.pop())
        self._slots[sequence.id] = slot
        self._pools.write_line(
            self._tables[slot.index], sequence.self_pages, sequence.cross_pages, sequence.kept
        )
        self._has_new_tables = True
        assert sequence.num_cached == 0, sequence.num_cached
        return slot

    def _make_row(self, sequence: Sequence, slot: Slot) -> tuple[Row, Rows[int]]:
        seed = (sequence.seed * 8191 + sequence.attempt) % NUM_SEEDS
        limit, temperature = sequence.num_positions, sequence.temperature
        if slot.proposed is None:
            step_input = make_step_input(sequence)
            probe = -1 if step_input.sot is None else step_input.sot
            row = Row(
                slot.index,
                step_input.tokens,
                step_input.first_sampled,
                step_input.position == 0,
                limit,
                probe,
                temperature,
                seed,
            )
            return row, step_input.proposal
        # one token more than was proposed is in flight
        ahead = slot.proposed + 1
        proposal: list[int] = []
        if sequence.draft is not None:
            limit_tokens = sequence.max_tokens - len(sequence.tokens) - ahead - 1
            proposal = sequence.draft.propose(limit_tokens, ahead)
        row = Row(slot.index, [KEEP, *proposal], 0, False, limit, -1, temperature, seed)
        return row, proposal

    def _keep_queries(self, launched: Launched, share: slice) -> list[Tensor]:
        with torch.inference_mode(), torch.cuda.stream(self._graphs.stream):
            return [layer[share].clone() for layer in launched.queries]

    def _ask_language(self, launched: Launched, at: int) -> Tensor:
        stream = self._graphs.stream
        with torch.inference_mode(), torch.cuda.stream(stream):
            chances = launched.logits[at, self._language_ids].softmax(dim=0)
            answer = torch.empty(chances.shape, pin_memory=stream is not None)
            answer.copy_(chances, non_blocking=True)
            return answer

    def _read(self, batch: InFlight) -> None:
        batch.launched.done.wait()
        tokens, logprobs, silence = read_results(batch.launched.results)
        after = self._in_flight
        going = set() if after is None else {id(entry.slot) for entry in after.entries}
        for entry in batch.entries:
            sequence, slot = entry.sequence, entry.slot
            if self._slots.get(sequence.id) is not slot or sequence.is_stopped:
                continue  # it had ended before this step
            if id(slot) not in going:
                slot.proposed = None
            sequence.num_steps += 1
            position = sequence.num_cached
            if entry.probe >= 0:
                sequence.no_speech_probability = float(silence[entry.first + entry.probe])
            if entry.languages is not None:
                sequence.language_probabilities = dict(
                    zip(self._language_codes, entry.languages.tolist(), strict=True)
                )
            if entry.first_sampled == entry.count:  # only the start of transcript was read
                sequence.num_cached += entry.count
            else:
                share = slice(entry.first + entry.first_sampled, entry.first + entry.count)
                accept_sampled(
                    sequence,
                    entry.proposal,
                    tokens[share].tolist(),
                    logprobs[share].tolist(),
                    self._rules,
                    self._counters,
                )
            if entry.queries is not None:
                # of a draft, only what was accepted; a loop that was cut off leaves less
                count = max(sequence.num_cached - position, 0)
                slot.queries.append([layer[:count] for layer in entry.queries])
