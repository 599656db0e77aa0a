"""What the GPU's runner makes of its steps, with a device that is simulated token by token."""

from __future__ import annotations

from collections.abc import Sequence as Rows
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from engine.batching.counters import Counters
from engine.batching.device_encoder import DeviceEncoder
from engine.batching.draft import Draft
from engine.batching.recovery import Recovery
from engine.batching.scheduler import ADMIT_ALL, ADMIT_NONE, Encode
from engine.batching.sequence import Phase, Sequence
from engine.cuda.batch import KEEP, Row
from engine.cuda.launch import RESULT_FIELDS, Done, Launched
from engine.cuda.runner import CudaRunner
from engine.decoding.rules import Rules
from engine.model.folded_tail import KeptPositions
from tests.support.sequences import make_running

V, EOT, BEGIN = 60, 50, 52
LANGUAGES = {"en": 56, "de": 57}


@dataclass
class Slot:
    """What the device remembers."""

    position: int = 0
    said: int = 0
    read: list[int] = field(default_factory=list)  # tokens said and read again
    limit: int = 0


class Device:
    """A model that continues a given text for a row that reads its tokens, and samples 7 otherwise.

    Stands for the graphs and for the encoder. A sequence is known by its first page.
    """

    def __init__(self, texts: dict[int, list[int]], num_slots: int = 4) -> None:
        self.texts = texts
        self.stream = None
        self.max_tokens = 64
        self.num_eager = 0
        self.passes: list[list[Row]] = []
        self.is_encoded = True
        self._slots = [Slot() for _ in range(num_slots)]
        self._tables = np.zeros((num_slots, 2), dtype=np.int32)

    def is_over(self) -> bool:
        return self.is_encoded

    def wait(self) -> None:
        self.is_encoded = True

    def encode(self, *_: Any) -> Device:
        return self

    def write_line(
        self,
        line: npt.NDArray[np.int32],
        self_pages: Rows[int],
        cross: Rows[int],
        kept: KeptPositions,
    ) -> None:
        line[0] = self_pages[0]

    def launch(self, rows: Rows[Row], tables: npt.NDArray[np.int32] | None) -> Launched:
        if tables is not None:
            self._tables = tables.copy()
        self.passes.append(list(rows))
        results = np.full((self.max_tokens, RESULT_FIELDS), -1, dtype=np.int32)
        results.view(np.float32)[:, 1:] = 0.25
        firsts, first = [], 0
        for row in rows:
            firsts.append(first)
            self._run(row, results[first : first + len(row.tokens)])
            first += len(row.tokens)
        assert first <= self.max_tokens
        logits = torch.zeros(self.max_tokens, V)
        logits[:, LANGUAGES["de"]] = 2.0
        return Launched(
            Done(None), True, firsts, results, [torch.zeros(self.max_tokens, 1, 4)], logits
        )

    def _run(self, row: Row, results: npt.NDArray[np.int32]) -> None:
        slot = self._slots[row.slot]
        if row.starts:
            slot.position, slot.read, slot.limit = 0, [], row.limit
        text = [*self.texts[int(self._tables[row.slot, 0])], EOT]
        base = min(slot.position, slot.limit - len(row.tokens))
        tokens = [slot.said if token == KEEP else token for token in row.tokens]
        if row.first_sampled == len(tokens):
            slot.position = base + len(tokens)
            return
        # the first sampled token follows a prefix, or a token said in an earlier pass
        read = list(slot.read) if row.starts or not slot.position else [*slot.read]
        if row.first_sampled == 0 and not row.starts:
            read.append(tokens[0])
        chosen = []
        for proposed in (*tokens[row.first_sampled + 1 :], None):
            is_right = read == text[: len(read)] and len(read) < len(text)
            chosen.append(text[len(read)] if is_right else 7)
            if proposed is not None:
                read.append(proposed)
        results[row.first_sampled :, 0] = chosen
        at = 0
        proposals = tokens[row.first_sampled + 1 :]
        while at < len(proposals) and proposals[at] == chosen[at] != EOT:
            at += 1
        begin = [] if row.first_sampled or row.starts else [tokens[0]]
        slot.read = [*slot.read, *begin, *proposals[:at]]
        slot.said = chosen[at]
        slot.position = base + row.first_sampled + at + 1


def make_runner(device: Device) -> CudaRunner:
    pools: Any = device
    pools.tables = torch.zeros(len(device._slots), 2)
    pools.num_slots, pools.device = len(device._slots), torch.device("cpu")
    tokenizer: Any = SimpleNamespace(languages=LANGUAGES)
    parts: Any = device
    return CudaRunner(
        parts, parts, pools, parts, parts, Rules(V, EOT, BEGIN), tokenizer, Counters()
    )


def make_small(id: int, **fields: Any) -> Sequence:
    values = {"max_tokens": 30, "prefix": [40, 56, 41], "kept": KeptPositions(10)} | fields
    return make_running(id, **values)


def finish(runner: CudaRunner, sequences: list[Sequence], limit: int = 100) -> int:
    """Step until all have stopped; return the number of steps."""
    for count in range(limit):
        running = [s for s in sequences if not s.is_stopped]
        if not running:
            return count
        runner.step(running)
    raise AssertionError("they do not stop")


def test_texts_are_read_one_step_late_and_whole() -> None:
    device = Device({1: [1, 2, 3, 4], 2: [9, 8]})
    runner = make_runner(device)
    sequences = [make_small(1), make_small(2)]
    steps = finish(runner, sequences)
    assert [s.tokens for s in sequences] == [[1, 2, 3, 4], [9, 8]]
    assert all(s.is_ended and s.logprobs == [0.25] * (len(s.tokens) + 1) for s in sequences)
    assert steps == 6  # five passes, and one more to read the last
    assert runner._counters.num_graph_passes == runner._counters.num_passes == len(device.passes)
    assert all(row.tokens == [KEEP] for row in device.passes[1])
    assert sequences[0].num_cached == 3 + 4
    assert sequences[0].no_speech_probability == 0.25


@pytest.mark.parametrize("at", range(5))
@pytest.mark.parametrize("bad", [{1}, {4}, {2, 3}])
def test_a_step_that_fails_costs_the_windows_at_fault_and_no_token_of_others(
    bad: set[int], at: int
) -> None:
    device = Device({id: [10 * id + n for n in range(4)] for id in range(1, 5)})
    runner = make_runner(device)
    launch = device.launch

    def fail(rows: Rows[Row], tables: npt.NDArray[np.int32] | None) -> Launched:
        lines = runner._tables if tables is None else tables
        if len(device.passes) >= at and any(int(lines[row.slot, 0]) in bad for row in rows):
            raise RuntimeError("a kernel failed")
        return launch(rows, tables)

    device.launch = fail  # type: ignore[method-assign]
    scheduler: Any = SimpleNamespace(max_batch=4)
    recovery = Recovery(scheduler, runner, Counters())
    sequences = {id: make_small(id) for id in range(1, 5)}
    lost: set[int] = set()
    for _ in range(40):
        running = [s for id, s in sequences.items() if id not in lost and not s.is_stopped]
        for casualty in recovery.step(running) if running else ():
            lost.add(casualty.sequence.id)
            runner.forget(casualty.sequence)
    for id, sequence in sequences.items():
        if id not in lost:
            assert sequence.tokens == device.texts[id] and sequence.is_ended
    assert lost == bad


def test_a_draft_saves_steps_and_changes_no_token() -> None:
    text = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
    for draft in (text, [1, 2, 3, 30, 5, 6, 7, 8, 9, 10], [30, 31], [2, 3, 4, 5, 6], []):
        device = Device({1: text})
        sequence = make_small(1, draft=Draft(draft, BEGIN))
        steps = finish(make_runner(device), [sequence])
        assert sequence.tokens == text
        assert sequence.num_accepted <= sequence.num_drafted
        if draft[:3] == text[:3]:
            assert steps < 12


def test_text_stops_at_its_limit_and_its_tokens_stay_in_their_positions() -> None:
    device = Device({1: list(range(1, 30))})
    sequence = make_small(1, max_tokens=6, draft=Draft(list(range(1, 30)), BEGIN))
    finish(make_runner(device), [sequence])
    assert sequence.tokens == [1, 2, 3, 4, 5, 6] and sequence.is_truncated
    assert all(len(row.tokens) <= 9 for rows in device.passes for row in rows)


def test_another_attempt_begins_while_a_step_of_the_last_is_in_flight() -> None:
    device = Device({1: [1, 2, 3]})
    runner = make_runner(device)
    sequence = make_small(1)
    finish(runner, [sequence])
    runner.forget(sequence)
    sequence.restart(0.4)
    finish(runner, [sequence])
    assert sequence.tokens == [1, 2, 3] and len(sequence.logprobs) == 4
    starts = [row for rows in device.passes for row in rows if row.starts]
    assert [row.temperature for row in starts] == [0.0, 0.4]
    assert starts[0].seed != starts[1].seed


def test_slots_are_free_after_aborts_at_any_moment() -> None:
    device = Device({n: [1, 2, 3, 4, 5] for n in range(40)}, num_slots=2)
    runner = make_runner(device)
    for n in range(0, 40, 2):
        pair = [make_small(n), make_small(n + 1)]
        for _ in range(n % 7):
            runner.step([s for s in pair if not s.is_stopped])
        for sequence in pair:
            sequence.phase = Phase.DONE
            runner.forget(sequence)
            runner.forget(sequence)
    last = make_small(39)
    finish(runner, [last])
    assert last.tokens == [1, 2, 3, 4, 5]


def test_a_sequence_waits_for_its_language() -> None:
    device = Device({1: [5, 6]})
    runner = make_runner(device)
    sequence = make_small(1, needs_language=True)
    runner.step([sequence])
    assert sequence.language_probabilities is None
    runner.step([sequence])
    assert sequence.language_probabilities is not None
    assert sequence.language_probabilities["de"] > sequence.language_probabilities["en"]
    assert [len(row.tokens) for rows in device.passes for row in rows] == [1]
    sequence.prefix[1], sequence.needs_language = LANGUAGES["de"], False
    finish(runner, [sequence])
    assert sequence.tokens == [5, 6]
    assert device.passes[1][0].tokens == [57, 41]


def test_what_is_being_encoded_holds_up_no_other() -> None:
    device = Device({1: [1, 2, 3], 2: [4]})
    runner = make_runner(device)
    first, second = make_small(1), make_small(2)
    runner.step([first])
    device.is_encoded = False
    encoder = DeviceEncoder(runner.encode)
    encoder.start(Encode((second,)), [np.zeros(1, np.float32)])
    assert encoder.admission is ADMIT_NONE
    runner.step([first, second])
    runner.step([first, second])
    assert all(len(rows) == 1 for rows in device.passes)
    device.is_encoded = True
    assert encoder.admission is ADMIT_ALL
    finish(runner, [first, second])
    assert (first.tokens, second.tokens) == ([1, 2, 3], [4])


def test_with_nothing_else_to_do_the_encoder_is_waited_for() -> None:
    device = Device({2: [4]})
    runner = make_runner(device)
    device.is_encoded = False
    sequence = make_small(2)
    runner.encode([sequence], [np.zeros(1, np.float32)])
    runner.step([sequence])
    assert device.is_encoded and not device.passes
    finish(runner, [sequence])
    assert sequence.tokens == [4]


def test_rows_that_do_not_fit_come_in_the_next_step() -> None:
    device = Device({n: [n] for n in range(1, 4)})
    runner = make_runner(device)
    long = [*range(10, 39), 40]  # three of thirty tokens are more than a pass holds
    sequences = [make_small(n, prefix=list(long), sot_index=29) for n in range(1, 4)]
    finish(runner, sequences)
    assert [s.tokens for s in sequences] == [[1], [2], [3]]
    assert [len(rows) for rows in device.passes][:2] == [2, 3]
