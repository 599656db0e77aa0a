"""The sampler on the device: the last token of each slot, and the kernels that sample the next."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.cuda.batch import Inputs
from engine.cuda.kernels.sample import (
    SCAN_FIELDS,
    SLOT_FIELDS,
    STATE_FIELDS,
    accept_kernel,
    prepare_kernel,
    sample_kernel,
    scan_kernel,
)
from engine.cuda.launch import RESULT_FIELDS
from engine.decoding.rules import MAX_INITIAL_TIMESTAMP, Rules

SCAN_BLOCK = 4096  # vocabulary entries scanned by one program


class Sampler:
    """Fixed device tensors that steps read and write, one after another; none ever moves."""

    def __init__(
        self,
        rules: Rules,
        no_speech: int,
        *,
        num_slots: int,
        max_tokens: int,
        device: torch.device,
    ) -> None:
        """Allocate for one model.

        Args:
            no_speech: the token whose probability at the start of transcript is that of no
                speech.
            num_slots: sequences at once.
            max_tokens: of one step.
        """
        assert rules.with_timestamps
        self._rules = rules
        self._no_speech = no_speech
        self._num_chunks = -(-rules.eot // SCAN_BLOCK)

        def ints(*shape: int) -> Tensor:
            return torch.zeros(*shape, dtype=torch.int32, device=device)

        self._slots = ints(num_slots, SLOT_FIELDS)
        self.tokens = torch.zeros(max_tokens, dtype=torch.int64, device=device)
        self.positions = torch.zeros(max_tokens, dtype=torch.int64, device=device)
        self.states = ints(max_tokens, STATE_FIELDS)
        self.probes = ints(max_tokens)
        self.results = ints(max_tokens, RESULT_FIELDS)
        self._scans = torch.zeros(
            max_tokens, self._num_chunks, SCAN_FIELDS, dtype=torch.float32, device=device
        )

    def prepare(self, inputs: Inputs) -> None:
        """Write tokens, positions and states of a step."""
        prepare_kernel[(len(inputs.rows),)](
            inputs.rows,
            inputs.given,
            self._slots,
            self.tokens,
            self.positions,
            self.states,
            self.probes,
            self._rules.timestamp_begin,
            num_warps=1,
        )

    def sample(self, inputs: Inputs, logits: Tensor) -> None:
        """Sample a token after each of the first N, (N, V) float32, into `results`."""
        N, V = logits.shape
        rules = self._rules
        scan_kernel[(self._num_chunks, N)](
            logits,
            rules.never,
            inputs.temperatures,
            inputs.seeds,
            self.positions,
            self._scans,
            V,
            logits.stride(0),
            rules.eot,
            NUM_CHUNKS=self._num_chunks,
            BLOCK=SCAN_BLOCK,
            num_warps=8,
        )
        sample_kernel[(N,)](
            logits,
            rules.never,
            self._scans,
            self.states,
            self.probes,
            inputs.temperatures,
            inputs.seeds,
            self.positions,
            self.results,
            V,
            logits.stride(0),
            rules.eot,
            rules.timestamp_begin,
            self._no_speech,
            MAX_INITIAL=MAX_INITIAL_TIMESTAMP,
            NUM_CHUNKS=self._num_chunks,
            CHUNK_BLOCK=next_power_of_2(self._num_chunks),
            SPECIAL_BLOCK=next_power_of_2(rules.timestamp_begin - rules.eot),
            TIME_BLOCK=next_power_of_2(V - rules.timestamp_begin),
            num_warps=4,
        )

    def accept(self, inputs: Inputs) -> None:
        """Move each slot on by what was sampled and, of a draft, accepted."""
        accept_kernel[(len(inputs.rows),)](
            inputs.rows,
            self.tokens,
            self.positions,
            self.states,
            self.results,
            self._slots,
            self._rules.eot,
            self._rules.timestamp_begin,
            num_warps=1,
        )


def next_power_of_2(n: int) -> int:
    return 1 << (n - 1).bit_length()
