"""Sampling on the device against `engine.decoding.rules`, and steps without the host between."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch

from engine.cuda.batch import (
    KEEP,
    TOKEN_INTS,
    Inputs,
    Row,
    pack,
    view_inputs,
)
from engine.decoding.rules import Rules, RuleState, no_speech_probability

pytestmark = pytest.mark.cuda

EOT, BEGIN, V, NO_SPEECH = 300, 340, 400, 330


@pytest.fixture
def rules(device: torch.device) -> Rules:
    return Rules(V, EOT, BEGIN, suppress=[3, 5, 320], begin_suppress=[7], device=device)


def empty_inputs(num_tokens: int, device: torch.device) -> Inputs:
    return view_inputs(torch.zeros(TOKEN_INTS * num_tokens, dtype=torch.int32, device=device))


def lay_out(inputs: Inputs, rows: list[Row]) -> None:
    N = len(inputs.rows)
    packed = np.zeros(TOKEN_INTS * N, dtype=np.int32)
    pack(rows, N, packed)
    for mine, theirs in zip((inputs.rows, inputs.given), view_fields(packed), strict=True):
        mine.copy_(theirs)


def view_fields(packed: npt.NDArray[np.int32]) -> tuple[torch.Tensor, torch.Tensor]:
    views = view_inputs(torch.from_numpy(packed))
    return views.rows, views.given


def test_tokens_and_probabilities_equal_the_rules(device: torch.device, rules: Rules) -> None:
    from engine.cuda.launch import read_results
    from engine.cuda.sampler import Sampler

    torch.manual_seed(1)
    N = 64
    logits = torch.randn(N, V) * 3
    logits[::3, BEGIN:] += 3
    logits = logits.to(device)
    flags = torch.randint(0, 2, (N, 3), dtype=torch.bool)
    is_first = flags[:, 0] & (torch.arange(N) < 16)
    state = RuleState(
        is_first.to(device),
        (flags[:, 1] & ~is_first).to(device),
        (flags[:, 2] | is_first).to(device),
        torch.where(is_first, BEGIN - 1, torch.randint(BEGIN - 1, V, (N,))).to(device),
    )
    expected = rules.sample_greedy(logits, state)
    sampler = Sampler(rules, NO_SPEECH, num_slots=4, max_tokens=N, device=device)
    fields = (state.is_first, state.last_is_time, state.previous_is_time, state.last_time)
    sampler.states.copy_(torch.stack([field.int() for field in fields], dim=1))
    sampler.probes.copy_(torch.arange(N) % 2)
    sampler.sample(empty_inputs(N, device), logits)
    tokens, logprobs, silence = read_results(sampler.results.cpu().numpy())
    assert tokens.tolist() == expected.tokens.tolist()
    torch.testing.assert_close(
        torch.from_numpy(logprobs), expected.logprobs.cpu(), rtol=1e-4, atol=1e-4
    )
    spoken = no_speech_probability(logits, NO_SPEECH).cpu()
    torch.testing.assert_close(torch.from_numpy(silence)[1::2], spoken[1::2], rtol=1e-4, atol=1e-6)


def test_sampling_draws_allowed_tokens_and_repeats_itself(
    device: torch.device, rules: Rules
) -> None:
    from engine.cuda.launch import read_results
    from engine.cuda.sampler import Sampler

    N = 32
    sampler = Sampler(rules, NO_SPEECH, num_slots=4, max_tokens=N, device=device)
    sampler.states.copy_(torch.tensor([0, 0, 0, BEGIN - 1]).expand(N, 4))
    inputs = empty_inputs(N, device)
    inputs.temperatures.fill_(1.0)
    logits = torch.zeros(N, V, device=device)
    logits[:, BEGIN:] = -20

    def draw(seeds: list[int], positions: list[int]) -> list[int]:
        inputs.seeds.copy_(torch.tensor(seeds))
        sampler.positions.copy_(torch.tensor(positions))
        sampler.sample(inputs, logits)
        tokens, _, _ = read_results(sampler.results.cpu().numpy())
        return [int(token) for token in tokens]

    drawn = draw(list(range(N)), [5] * N)
    assert len(set(drawn)) > 10
    assert not {3, 5, 320, BEGIN - 1} & set(drawn)
    # the same wherever the row stands in a batch, another at another position
    assert draw(list(reversed(range(N))), [5] * N) == drawn[::-1]
    assert len(set(draw([7] * N, list(range(N))))) > 10


def test_a_step_follows_the_last_without_the_host(device: torch.device, rules: Rules) -> None:
    """Drafts that are right, wrong and absent, against the rules' states said one by one."""
    from engine.cuda.sampler import Sampler

    sampler = Sampler(rules, NO_SPEECH, num_slots=4, max_tokens=16, device=device)
    inputs = empty_inputs(16, device)
    script = [BEGIN + 2, 10, 11, BEGIN + 8, BEGIN + 8, 12, EOT]
    logits = torch.full((16, V), -10.0)

    def run(row: Row, said: list[int]) -> None:
        lay_out(inputs, [row])
        sampler.prepare(inputs)
        for at, token in enumerate(said, row.first_sampled):
            logits[at] = -10.0
            logits[at, token] = 10.0
        sampler.sample(inputs, logits.to(device))
        sampler.accept(inputs)

    # the prefix of three tokens, then a draft of which two are right
    run(Row(2, [50, 51, 52, BEGIN + 2, 10, 99], 2, True, 40), script[:4])
    assert sampler.tokens[:6].tolist() == [50, 51, 52, BEGIN + 2, 10, 99]
    assert sampler.positions[:6].tolist() == [0, 1, 2, 3, 4, 5]
    # 11 was said where the draft had 99: it stands next, at position 5
    run(Row(2, [KEEP, BEGIN + 8, BEGIN + 8], 0, False, 40), script[3:6])
    assert sampler.tokens[:3].tolist() == [11, BEGIN + 8, BEGIN + 8]
    assert sampler.positions[:3].tolist() == [5, 6, 7]
    state = rules.start(1)
    for token in script[:3]:
        state = rules.advance(state, torch.tensor([token], device=device))
    expected = rules.follow(state, torch.tensor([BEGIN + 8, BEGIN + 8], device=device))
    states = sampler.states[:3].tolist()
    assert [s[0] for s in states] == expected.is_first.tolist()
    assert [s[1] for s in states] == expected.last_is_time.tolist()
    assert [s[2] for s in states] == expected.previous_is_time.tolist()
    assert [s[3] for s in states] == expected.last_time.tolist()
    run(Row(2, [KEEP], 0, False, 40), [EOT])
    assert sampler.tokens[:1].tolist() == [12]
    assert sampler.positions[:1].tolist() == [8]
    # the host does not know yet that it has ended: it must not leave its positions
    run(Row(2, [KEEP, 1, 2], 0, False, 10), [EOT])
    run(Row(2, [9, 9], 2, True, 3), [])
    assert sampler.positions[:2].tolist() == [0, 1]
    run(Row(2, [8, KEEP], 0, False, 3), [10])
    assert sampler.positions[:2].tolist() == [1, 2]
