"""Passes of a small random model: drafts, batches, languages, temperatures, alignment."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence as Rows
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import numpy as np
import pytest
import torch

from engine.api import Samples
from engine.batching.counters import Counters
from engine.batching.draft import Draft
from engine.batching.runner import EagerRunner
from engine.batching.sequence import Sequence
from engine.checkpoint.model_config import ModelConfig
from engine.decoding.rules import Rules
from engine.decoding.tokenizer import Tokenizer
from engine.model.folded_tail import KeptPositions
from engine.model.sdpa import SdpaAttention
from engine.model.whisper import Whisper
from tests.support.sequences import make_running
from tests.support.small_model import CONFIG, make_weights

EOT, SOT, NO_SPEECH, BEGIN = 150, 151, 157, 160
LANGUAGES = {"aa": 152, "bb": 153}
SELF_PAGES, CROSS_PAGES = 4, 1  # that a sequence gets


class FakeTokenizer:
    languages = LANGUAGES
    no_speech = NO_SPEECH


def make_config() -> ModelConfig:
    return dataclasses.replace(CONFIG, max_target_positions=64)


def make_runner(seed: int = 0) -> EagerRunner:
    config = make_config()
    # small enough for attention to spread, large enough for texts to differ
    weights = {name: w * 0.3 for name, w in make_weights(config, seed).items()}
    weights["decoder.positions"] *= 10  # or the text would soon loop
    device = torch.device("cpu")
    attention = SdpaAttention(
        config,
        num_self_pages=64,
        self_page_size=16,
        num_cross_pages=16,
        cross_page_size=50,
        dtype=torch.float32,
        device=device,
    )
    rules = Rules(config.vocab_size, EOT, BEGIN, suppress=(*range(EOT + 1, BEGIN - 1),))
    tokenizer = cast(Tokenizer, FakeTokenizer())
    return EagerRunner(Whisper(config, weights), attention, rules, tokenizer, device, Counters())


def make_prompted(id: int, *, prompt: Rows[int] = (), **fields: Any) -> Sequence:
    return make_running(
        id,
        num_self_pages=SELF_PAGES,
        kept=KeptPositions(20, 2, 5),
        prefix=[*prompt, SOT, LANGUAGES["aa"], 155],
        max_tokens=40,
        sot_index=len(prompt),
        **fields,
    )


def make_audio(seed: int) -> Samples:
    return np.random.default_rng(seed).normal(0, 0.1, 3200 + 160 * seed).astype(np.float32)


def run(runner: EagerRunner, *sequences: Sequence) -> None:
    """Encode and decode to the end; a sequence that stopped leaves the batch."""
    runner.encode(sequences, [make_audio(s.id) for s in sequences])
    running = list(sequences)
    while running:
        runner.step(running)
        running = [s for s in running if not s.is_stopped]


@pytest.fixture(scope="module")
def alone() -> list[Sequence]:
    """Five sequences, each decoded alone."""
    sequences = [make_prompted(id, prompt=range(id)) for id in range(5)]
    for sequence in sequences:
        run(make_runner(), sequence)
    return sequences


def test_texts_differ_and_are_long_enough_to_tell(alone: list[Sequence]) -> None:
    assert len({tuple(s.tokens) for s in alone}) > 1
    assert max(len(s.tokens) for s in alone) > 8
    for s in alone:
        assert len(s.logprobs) >= len(s.tokens) and all(p <= 0 for p in s.logprobs)
        assert 0 < s.no_speech_probability < 1


def test_a_batch_of_n_equals_n_of_one(alone: list[Sequence]) -> None:
    together = [make_prompted(id, prompt=range(id)) for id in range(5)]
    run(make_runner(), *together)
    assert [s.tokens for s in together] == [s.tokens for s in alone]
    assert [s.logprobs for s in together] == [s.logprobs for s in alone]


@pytest.mark.parametrize("wrong", [(), (0,), (3,), (2, 5, 6), tuple(range(40))])
def test_a_draft_changes_nothing_but_the_steps(alone: list[Sequence], wrong: tuple[int]) -> None:
    runner = make_runner()
    for expected in alone:
        guess = [7 if n in wrong else token for n, token in enumerate(expected.tokens)]
        sequence = make_prompted(expected.id, prompt=range(expected.id))
        sequence.draft = Draft(guess, BEGIN)
        run(runner, sequence)
        assert sequence.tokens == expected.tokens
        assert sequence.logprobs == expected.logprobs
        assert sequence.is_ended == expected.is_ended
        if not wrong and not expected.is_truncated:
            assert sequence.num_steps == 1
            assert sequence.num_accepted == len(expected.tokens)


def test_a_window_encoded_slowly_is_encoded_the_same(alone: list[Sequence]) -> None:
    runner = make_runner()
    slow, quick = (make_prompted(id, prompt=range(id)) for id in (3, 1))
    left = []
    for num_left in runner.encode_in_pieces([slow], [make_audio(slow.id)]):
        left.append(num_left)
        run(runner, quick)  # others are planned, encoded and decoded in between
        assert quick.tokens == alone[1].tokens
        quick = make_prompted(1, prompt=range(1))
    assert left == list(range(make_config().encoder_layers + 2, 0, -1))
    while not slow.is_stopped:
        runner.step([slow])
    assert slow.tokens == alone[3].tokens and slow.logprobs == alone[3].logprobs


def test_windows_encoded_in_threads_of_any_number_are_the_same(alone: list[Sequence]) -> None:
    before = torch.get_num_threads()
    runner = make_runner()
    sequences = [make_prompted(id, prompt=range(id)) for id in range(4)]

    def encode(sequence: Sequence) -> None:
        torch.set_num_threads(1 + sequence.id % 2)
        for _ in runner.encode_in_pieces([sequence], [make_audio(sequence.id)]):
            time.sleep(0)  # lets another thread go on

    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(encode, sequences))
    finally:
        torch.set_num_threads(before)
    while any(not sequence.is_stopped for sequence in sequences):
        runner.step([sequence for sequence in sequences if not sequence.is_stopped])
    for sequence, expected in zip(sequences, alone, strict=False):
        assert sequence.tokens == expected.tokens and sequence.logprobs == expected.logprobs


def test_a_window_that_lost_its_pages_is_not_written_anywhere(alone: list[Sequence]) -> None:
    runner = make_runner()
    kept, lost = (make_prompted(id, prompt=range(id)) for id in (1, 2))
    for num_left in runner.encode_in_pieces([lost, kept], [make_audio(2), make_audio(1)]):
        if num_left == 1:
            lost.cross_pages = ()
    while not kept.is_stopped:
        runner.step([kept])
    assert kept.tokens == alone[1].tokens


def test_the_language_is_probed_before_it_is_read(alone: list[Sequence]) -> None:
    runner = make_runner()
    sequence = make_prompted(0, needs_language=True)
    runner.encode([sequence], [make_audio(0)])
    runner.step([sequence])
    assert sequence.num_cached == 1 and not sequence.tokens
    assert sequence.language_probabilities is not None
    assert sum(sequence.language_probabilities.values()) == pytest.approx(1.0)
    sequence.needs_language = False
    while not sequence.is_stopped:
        runner.step([sequence])
    assert sequence.tokens == alone[0].tokens


def test_another_temperature_uses_the_same_encode() -> None:
    runner = make_runner()
    sequence = make_prompted(0)
    run(runner, sequence)
    texts = []
    for _ in range(2):
        sequence.attempt = 0
        sequence.restart(1.5)
        while not sequence.is_stopped:
            runner.step([sequence])
        texts.append(list(sequence.tokens))
    assert texts[0] == texts[1], "the noise of an attempt is its own"
    sequence.restart(1.5)
    while not sequence.is_stopped:
        runner.step([sequence])
    assert sequence.tokens != texts[0], "and another attempt's is another"


def test_tokens_stop_at_the_limit() -> None:
    for id in range(5):
        sequence = make_prompted(id)
        sequence.max_tokens = 3
        run(make_runner(), sequence)
        assert len(sequence.tokens) <= 3
        assert sequence.is_ended or sequence.is_truncated


@pytest.mark.parametrize("has_draft", [False, True])
def test_alignment_has_a_row_for_each_position(alone: list[Sequence], has_draft: bool) -> None:
    runner = make_runner()
    sequence = make_prompted(1, prompt=range(1), word_times=True)
    other = make_prompted(2, prompt=range(2))
    if has_draft:
        sequence.draft = Draft([*alone[1].tokens[:4], 7, *alone[1].tokens[5:]], BEGIN)
    run(runner, sequence, other)
    assert sequence.tokens == alone[1].tokens
    rows = len(sequence.prefix) + len(sequence.tokens) - (0 if sequence.is_ended else 1)
    assert runner.read_alignment(sequence).shape == (2, rows, sequence.kept.num_full)
    runner.forget(sequence)
    runner.forget(sequence)


def test_read_only_and_backward_audio_is_read() -> None:
    def tokens_of(*audio: Samples) -> list[list[int]]:
        runner = make_runner()
        sequences = [make_prompted(0), make_prompted(1)]
        runner.encode(sequences, audio)
        for sequence in sequences:
            while not sequence.is_stopped:
                runner.step([sequence])
        return [sequence.tokens for sequence in sequences]

    audio = make_audio(0)
    expected = tokens_of(audio, audio[::-1].copy())
    audio.flags.writeable = False
    assert tokens_of(audio, audio[::-1]) == expected
