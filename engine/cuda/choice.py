"""The device's memory of what each sequence says next, and the kernels that choose it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine.cuda.kernels.choose import (
    KEEP,
    ROW_FIELDS,
    SLOT_FIELDS,
    STATE_FIELDS,
    accept_kernel,
    choose_kernel,
    prepare_kernel,
)
from engine.rules import MAX_INITIAL_TIMESTAMP, Rules

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]

RESULT_FIELDS = 3  # of a token: what follows it, its log-probability, no-speech probability


@dataclass(frozen=True, slots=True)
class Row:
    """What one sequence brings to a pass."""

    slot: int
    count: int  # tokens read
    first_sampled: int  # of those: from here on one is sampled after each; `count` for none
    starts: bool  # at position 0, nothing said yet; else it goes on where it stands
    limit: int  # positions that it may fill
    probe: int  # of its tokens: the start of transcript; -1 if it is not among them


class Chooser:
    """Fixed device tensors that a pass reads and writes; none of them ever moves."""

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
            no_speech: the token whose probability at the start of transcript says that nobody
                speaks.
        """
        assert rules.with_timestamps
        self._rules = rules
        self._no_speech = no_speech

        def ints(*shape: int) -> Tensor:
            return torch.zeros(*shape, dtype=torch.int32, device=device)

        self._slots = ints(num_slots, SLOT_FIELDS)
        # what the host says of a pass
        self.rows = ints(num_slots, ROW_FIELDS)
        self.given = ints(max_tokens)
        self.temperatures = torch.zeros(max_tokens, dtype=torch.float32, device=device)
        self.seeds = ints(max_tokens)
        # what follows from it
        self.tokens = torch.zeros(max_tokens, dtype=torch.int64, device=device)
        self.positions = torch.zeros(max_tokens, dtype=torch.int64, device=device)
        self.states = ints(max_tokens, STATE_FIELDS)
        self.probes = ints(max_tokens)
        self.results = ints(max_tokens, RESULT_FIELDS)
        self._never = rules.never

    def lay_out(self, rows: Sequence[Row], given: Sequence[int]) -> None:
        """Copy a pass to the device; `given` holds KEEP where a slot knows the token."""
        lines = pack_rows(rows)
        self.rows.zero_()
        self.rows[: len(lines)] = torch.from_numpy(lines).to(self.rows.device)
        values = torch.tensor(given, dtype=torch.int32)
        self.given[: len(given)] = values.to(self.given.device)

    def prepare(self, num_rows: int) -> None:
        """Write tokens, positions and states of the pass that is laid out."""
        prepare_kernel[(num_rows,)](
            self.rows,
            self.given,
            self._slots,
            self.tokens,
            self.positions,
            self.states,
            self.probes,
            self._rules.timestamp_begin,
            num_warps=1,
        )

    def choose(self, logits: Tensor) -> None:
        """Choose a token after each of the first N, (N, V) float32, into `results`."""
        N, V = logits.shape
        rules = self._rules
        choose_kernel[(N,)](
            logits,
            self._never,
            self.states,
            self.probes,
            self.temperatures,
            self.seeds,
            self.results,
            V,
            rules.eot,
            rules.timestamp_begin,
            self._no_speech,
            MAX_INITIAL=MAX_INITIAL_TIMESTAMP,
            BLOCK=4096,
            SPECIAL_BLOCK=next_power_of_2(rules.timestamp_begin - rules.eot),
            TIME_BLOCK=next_power_of_2(V - rules.timestamp_begin),
            num_warps=8,
        )

    def accept(self, num_rows: int) -> None:
        """Move each slot on by what was sampled and, of a draft, accepted."""
        accept_kernel[(num_rows,)](
            self.rows,
            self.tokens,
            self.positions,
            self.states,
            self.results,
            self._slots,
            self._rules.eot,
            self._rules.timestamp_begin,
            num_warps=1,
        )

    def read(self, results: Tensor) -> tuple[Ints, Floats, Floats]:
        """Take results apart on the host: tokens, log-probabilities, no-speech probabilities."""
        array = results.numpy()
        floats = array.view(np.float32)
        return array[:, 0], floats[:, 1], floats[:, 2]


def pack_rows(rows: Sequence[Row]) -> Ints:
    """Lay rows out as the kernels read them: (rows, ROW_FIELDS)."""
    packed = np.zeros((len(rows), ROW_FIELDS), dtype=np.int32)
    first = 0
    for line, row in zip(packed, rows, strict=True):
        start = 0 if row.starts else KEEP
        line[:7] = row.slot, first, row.count, row.first_sampled, start, row.limit, row.probe
        first += row.count
    return packed


def next_power_of_2(n: int) -> int:
    return 1 << (n - 1).bit_length()
