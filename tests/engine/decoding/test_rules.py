"""The decoding rules against transformers' logits processors."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine.decoding.rules import (
    Rules,
    build_rules,
    find_highest,
    language_probabilities,
    no_speech_probability,
    sample,
)

# a small vocabulary in Whisper's order: text, end, other special tokens, notimestamps, times
EOT, TIME, VOCABULARY = 40, 48, 130
SUPPRESS, BEGIN_SUPPRESS = (3, 7, 41, 43), (5, EOT)
PROMPT = (42, 44, 45)


def reference(begin: int, with_timestamps: bool = True) -> list[Any]:
    generation = pytest.importorskip("transformers.generation.logits_process")
    config = SimpleNamespace(
        no_timestamps_token_id=TIME - 1,
        eos_token_id=EOT,
        bos_token_id=EOT,
        max_initial_timestamp_index=50,
    )
    processors = [
        generation.SuppressTokensLogitsProcessor(SUPPRESS),
        generation.SuppressTokensAtBeginLogitsProcessor(BEGIN_SUPPRESS, begin),
    ]
    if with_timestamps:
        processors.append(generation.WhisperTimeStampLogitsProcessor(config, begin))
    return processors


def process(processors: list[Any], prefix: Sequence[Sequence[int]], logits: Tensor) -> Tensor:
    ids = torch.tensor([[*PROMPT, *row] for row in prefix])
    for processor in processors:
        logits = processor(ids, logits)
    return logits


def make_rules(with_timestamps: bool = True) -> Rules:
    return Rules(VOCABULARY, EOT, TIME, SUPPRESS, BEGIN_SUPPRESS, with_timestamps)


def random_logits(num_rows: int, generator: torch.Generator) -> Tensor:
    logits = torch.randn(num_rows, VOCABULARY, generator=generator) * 3
    # now and then times or the end become probable, so that every branch is taken
    logits[:, TIME:] += torch.randn(num_rows, 1, generator=generator) * 3
    logits[:, EOT] += torch.randn(num_rows, generator=generator) * 3
    return logits


@pytest.mark.parametrize("with_timestamps", [True, False])
@pytest.mark.parametrize("seed", range(40))
def test_decoding_step_by_step_equals_the_reference(seed: int, with_timestamps: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    rules, processors = make_rules(with_timestamps), reference(len(PROMPT), with_timestamps)
    num_rows = 1 + seed % 9
    state = rules.start(num_rows)
    tokens = torch.empty(num_rows, 0, dtype=torch.long)
    for _ in range(25):
        logits = random_logits(num_rows, generator)
        expected = process(processors, tokens.tolist(), logits)
        masked = rules.mask(logits, state)
        assert torch.equal(masked, expected)
        choice = rules.sample_greedy(logits.clone(), state)
        logprobs = expected.log_softmax(dim=1)
        assert choice.tokens.tolist() == expected.argmax(dim=1).tolist()
        torch.testing.assert_close(choice.logprobs, logprobs.amax(dim=1), atol=1e-5, rtol=1e-5)
        # go on with a drawn token, so that the sequences are legal, but all kinds of them
        token = torch.multinomial(logprobs.exp(), 1, generator=generator)
        state = rules.advance(state, token[:, 0])
        tokens = torch.cat([tokens, token], dim=1)


@pytest.mark.parametrize("seed", range(100))
def test_any_sequence_is_judged_as_the_reference_does(seed: int) -> None:
    """Drafts may hold anything: times running backwards, three in a row, special tokens."""
    generator = torch.Generator().manual_seed(seed)
    rules, processors = make_rules(), reference(len(PROMPT))
    draft = torch.randint(0, VOCABULARY, (20,), generator=generator)
    if seed % 2:
        draft = torch.randint(EOT - 2, VOCABULARY, (20,), generator=generator)
    logits = random_logits(21, generator)
    masked = rules.mask(logits, rules.follow(rules.start(1), draft))
    for position in range(21):
        expected = process(processors, [draft[:position].tolist()], logits[position : position + 1])
        assert torch.equal(masked[position], expected[0])


@given(
    st.lists(st.integers(0, VOCABULARY - 1), max_size=12),
    st.lists(st.integers(0, VOCABULARY - 1), max_size=12),
)
@settings(deadline=None)
def test_following_a_draft_equals_advancing_token_by_token(
    before: list[int], draft: list[int]
) -> None:
    rules = make_rules()
    state = rules.start(1)
    for token in before:
        state = rules.advance(state, torch.tensor([token]))
    along = rules.follow(state, torch.tensor(draft, dtype=torch.long))
    for position in range(len(draft) + 1):
        row = along.take(torch.tensor([position]))
        assert (row.is_first, row.last_is_time, row.previous_is_time, row.last_time) == (
            state.is_first,
            state.last_is_time,
            state.previous_is_time,
            state.last_time,
        )
        if position < len(draft):
            state = rules.advance(state, torch.tensor([draft[position]]))


def test_rows_of_different_lengths_share_a_batch() -> None:
    generator = torch.Generator().manual_seed(1)
    rules = make_rules()
    histories: list[list[int]] = [[], [TIME], [TIME, 1], [TIME, 1, TIME + 9], [TIME, 1, 60, 60]]
    rows = [rules.follow(rules.start(1), torch.tensor(h, dtype=torch.long)) for h in histories]
    state = rules.start(len(rows))
    for i, row in enumerate(rows):
        last = row.take(torch.tensor([len(histories[i])]))
        for name in ("is_first", "last_is_time", "previous_is_time", "last_time"):
            getattr(state, name)[i] = getattr(last, name)[0]
    logits = random_logits(len(rows), generator)
    masked = rules.mask(logits, state)
    for i, history in enumerate(histories):
        expected = process(reference(len(PROMPT)), [history], logits[i : i + 1])
        assert torch.equal(masked[i], expected[0])


@pytest.mark.model
def test_rules_of_a_real_model_start_with_a_timestamp(base: Any) -> None:
    rules = build_rules(base.config, base.tokenizer)
    masked = rules.mask(torch.zeros(1, base.config.vocab_size), rules.start(1))
    allowed = masked[0].isfinite().nonzero()[:, 0].tolist()
    begin = base.tokenizer.timestamp_begin
    assert allowed == list(range(begin, begin + 51))


@pytest.mark.parametrize("size", [1, 255, 512, 513, 1000, 51_865])
def test_the_highest_is_found_wherever_it_stands(size: int) -> None:
    generator = torch.Generator().manual_seed(size)
    x = torch.randn(20, size, generator=generator)
    x[torch.arange(10), torch.randint(0, size, (10,), generator=generator)] = 9
    x[:3, -1] = 10
    x[3:6, 0] = 10
    x[6] = -torch.inf
    x[7] = 1  # equal everywhere: the first counts
    highest = find_highest(x)
    assert torch.equal(highest.values, x.amax(dim=1))
    assert torch.equal(highest.indices, x.argmax(dim=1))
    assert highest.indices[7] == 0


@pytest.mark.model
def test_greedy_sampling_equals_the_argmax_of_masking_with_a_real_vocabulary(base: Any) -> None:
    generator = torch.Generator().manual_seed(0)
    rules = build_rules(base.config, base.tokenizer)
    draft = torch.randint(50_300, 51_865, (30,), generator=generator)
    state = rules.follow(rules.start(1), draft)
    logits = torch.randn(31, base.config.vocab_size, generator=generator) * 4
    logits[::3, base.tokenizer.timestamp_begin :] += 10
    masked = rules.mask(logits, state)
    choice = rules.sample_greedy(logits, state)
    assert torch.equal(choice.tokens, masked.argmax(dim=1))
    torch.testing.assert_close(choice.logprobs, masked.log_softmax(dim=1).amax(dim=1))


def test_temperature_zero_takes_the_most_probable() -> None:
    logits = torch.tensor([[0.0, 2.0, 1.0], [3.0, -torch.inf, 0.0]])
    choice = sample(logits, torch.zeros(2))
    assert choice.tokens.tolist() == [1, 0]
    torch.testing.assert_close(choice.logprobs, logits.log_softmax(dim=1).amax(dim=1))


def test_sampling_follows_the_tempered_distribution() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.tensor([0.0, 1.0, -torch.inf, 2.0])
    num_rows = 20_000
    choice = sample(logits.expand(num_rows, 4), torch.full((num_rows,), 0.5), generator=generator)
    counts = choice.tokens.bincount(minlength=4) / num_rows
    torch.testing.assert_close(counts, (logits / 0.5).softmax(dim=0), atol=0.01, rtol=0)
    assert counts[2] == 0


def test_no_speech_probability_is_a_softmax_over_everything() -> None:
    logits = torch.randn(3, 50, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(no_speech_probability(logits, 7), logits.softmax(dim=1)[:, 7])


def test_languages_compete_among_themselves_only() -> None:
    logits = torch.zeros(2, 50)
    logits[:, 0] = 100  # no language
    logits[1, 11] = 5
    probabilities = language_probabilities(logits, torch.tensor([10, 11, 12]))
    assert probabilities.argmax(dim=1)[1] == 1
    torch.testing.assert_close(probabilities.sum(dim=1), torch.ones(2))
    torch.testing.assert_close(probabilities[0], torch.full((3,), 1 / 3))
