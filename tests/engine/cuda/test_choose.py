"""Choosing on the device against `engine.rules`, and following a pass without the host."""

from __future__ import annotations

import pytest
import torch

from engine.rules import Rules, RuleState, no_speech_probability

pytestmark = pytest.mark.cuda

EOT, BEGIN, V, NO_SPEECH = 300, 340, 400, 330


@pytest.fixture
def rules() -> Rules:
    return Rules(V, EOT, BEGIN, suppress=[3, 5, 320], begin_suppress=[7])


def test_tokens_and_probabilities_equal_the_rules(device: torch.device, rules: Rules) -> None:
    from engine.cuda.choice import Chooser

    torch.manual_seed(1)
    N = 64
    logits = torch.randn(N, V) * 3
    logits[::3, BEGIN:] += 3
    flags = torch.randint(0, 2, (N, 3), dtype=torch.bool)
    is_first = flags[:, 0] & (torch.arange(N) < 16)
    state = RuleState(
        is_first,
        flags[:, 1] & ~is_first,
        flags[:, 2] | is_first,
        torch.where(is_first, BEGIN - 1, torch.randint(BEGIN - 1, V, (N,))),
    )
    expected = rules.choose(logits, state)
    chooser = Chooser(rules, NO_SPEECH, num_slots=4, max_tokens=N, device=device)
    packed = torch.stack(
        [state.is_first, state.last_is_time, state.previous_is_time, state.last_time], dim=1
    )
    chooser.states.copy_(packed)
    chooser.probes.copy_(torch.arange(N) % 2)
    chooser.choose(logits.to(device))
    tokens, logprobs, silence = chooser.read(chooser.results.cpu())
    assert tokens.tolist() == expected.tokens.tolist()
    torch.testing.assert_close(torch.from_numpy(logprobs), expected.logprobs, rtol=1e-4, atol=1e-4)
    spoken = no_speech_probability(logits, NO_SPEECH)
    torch.testing.assert_close(torch.from_numpy(silence)[1::2], spoken[1::2], rtol=1e-4, atol=1e-6)


def test_sampling_draws_allowed_tokens_and_repeats_itself(
    device: torch.device, rules: Rules
) -> None:
    from engine.cuda.choice import Chooser

    torch.manual_seed(2)
    N = 32
    chooser = Chooser(rules, NO_SPEECH, num_slots=4, max_tokens=N, device=device)
    chooser.states.copy_(torch.tensor([0, 0, 0, BEGIN - 1]).expand(N, 4))
    logits = torch.zeros(N, V)
    logits[:, BEGIN:] = -20
    drawn = []
    for _ in range(2):
        chooser.temperatures.fill_(1.0)
        chooser.seeds.copy_(torch.arange(N))
        chooser.choose(logits.to(device))
        drawn.append(chooser.read(chooser.results.cpu())[0].tolist())
    assert drawn[0] == drawn[1]
    assert len(set(drawn[0])) > 10
    assert not {3, 5, 320, BEGIN - 1} & set(drawn[0])


def test_a_pass_follows_the_last_without_the_host(device: torch.device, rules: Rules) -> None:
    """Drafts that are right, wrong and absent, against the rules' states said one by one."""
    from engine.cuda.choice import Chooser, Row
    from engine.cuda.kernels.choose import KEEP

    chooser = Chooser(rules, NO_SPEECH, num_slots=4, max_tokens=16, device=device)
    script = [BEGIN + 2, 10, 11, BEGIN + 8, BEGIN + 8, 12, EOT]
    logits = torch.full((16, V), -10.0)

    def say(at: int, token: int) -> None:
        logits[at] = -10.0
        logits[at, token] = 10.0

    # the prefix of three tokens, then a draft of which two are right
    rows = [Row(slot=2, count=6, first_sampled=2, starts=True, limit=40, probe=0)]
    chooser.lay_out(rows, [50, 51, 52, BEGIN + 2, 10, 99])
    chooser.prepare(1)
    assert chooser.tokens[:6].tolist() == [50, 51, 52, BEGIN + 2, 10, 99]
    assert chooser.positions[:6].tolist() == [0, 1, 2, 3, 4, 5]
    for at, token in zip(range(2, 6), script, strict=False):
        say(at, token)
    chooser.choose(logits.to(device))
    chooser.accept(1)
    # 11 was said where the draft had 99: it stands next, at position 5
    rows = [Row(slot=2, count=3, first_sampled=0, starts=False, limit=40, probe=-1)]
    chooser.lay_out(rows, [KEEP, BEGIN + 8, BEGIN + 8])
    chooser.prepare(1)
    assert chooser.tokens[:3].tolist() == [11, BEGIN + 8, BEGIN + 8]
    assert chooser.positions[:3].tolist() == [5, 6, 7]
    state = rules.start(1)
    for token in script[:3]:
        state = rules.advance(state, torch.tensor([token]))
    expected = rules.follow(state, torch.tensor([BEGIN + 8, BEGIN + 8]))
    assert chooser.states[:3, 0].tolist() == expected.is_first.tolist()
    assert chooser.states[:3, 1].tolist() == expected.last_is_time.tolist()
    assert chooser.states[:3, 2].tolist() == expected.previous_is_time.tolist()
    assert chooser.states[:3, 3].tolist() == expected.last_time.tolist()
    for at, token in enumerate(script[3:6]):
        say(at, token)
    chooser.choose(logits.to(device))
    chooser.accept(1)
    chooser.lay_out([Row(2, 1, 0, False, 40, -1)], [KEEP])
    chooser.prepare(1)
    assert chooser.tokens[:1].tolist() == [12]
    assert chooser.positions[:1].tolist() == [8]
