"""The model against transformers' WhisperForConditionalGeneration in float32, on real speech."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from engine.model.attention import DecoderRow
from engine.model.folded_tail import KeptPositions, choose_positions
from engine.model.mel import LogMel
from engine.model.sdpa import SdpaAttention
from engine.model.whisper import Whisper

pytestmark = pytest.mark.model


def make_attention(config: Any) -> SdpaAttention:
    return SdpaAttention(
        config,
        num_self_pages=64,
        self_page_size=16,
        num_cross_pages=90,
        cross_page_size=50,
        dtype=torch.float32,
        device=torch.device("cpu"),
    )


@pytest.mark.parametrize("name", ["base", "tiny_en"])
def test_encoder_and_logits_equal_transformers(
    name: str,
    request: pytest.FixtureRequest,
    read_clips: list[Any],
    reference: Callable[[Any], Any],
) -> None:
    loaded = request.getfixturevalue(name)
    model, hf = Whisper(loaded.config, loaded.weights), reference(loaded)
    attention = make_attention(loaded.config)
    clips = [torch.from_numpy(clip.read()) for clip in read_clips[:2]]
    kept_positions = [KeptPositions(1500)] * 2
    tokenizer = loaded.tokenizer
    tokens = [tokenizer.sot, tokenizer.timestamp_begin, *tokenizer.encode(" He turned sharply")]
    with torch.inference_mode():
        mel = LogMel(loaded.config.num_mels)(clips)
        attention.plan_encoder(kept_positions)
        encoded = model.encode(model.embed_audio(mel, kept_positions), attention)
        expected = hf.model.encoder(mel.dense()).last_hidden_state
        torch.testing.assert_close(encoded.view(expected.shape), expected, rtol=1e-3, atol=2e-3)
        pages = [tuple(range(30)), tuple(range(40, 70))]
        attention.store_cross(pages, model.project_cross(encoded))
        logits = []
        # a prompt of some tokens, then one token, in two rows at once
        for first, last in ((0, len(tokens) - 1), (len(tokens) - 1, len(tokens))):
            rows = [
                DecoderRow(last - first, first, (2 * n, 2 * n + 1), pages[n], kept_positions[n])
                for n in range(2)
            ]
            attention.plan_decoder(rows)
            x = model.decode(
                torch.tensor(tokens[first:last] * 2),
                torch.arange(first, last).repeat(2),
                attention,
            )
            logits.append(model.compute_logits(x).view(2, last - first, -1))
        decoder_input_ids = torch.tensor([tokens] * 2)
        expected = hf(encoder_outputs=(expected,), decoder_input_ids=decoder_input_ids).logits
        torch.testing.assert_close(torch.cat(logits, dim=1), expected, rtol=1e-3, atol=2e-3)


def test_convolutions_of_the_audio_alone_equal_those_of_30_s(base: Any) -> None:
    """Short windows of a batch, a folded one, and one that reaches the end."""
    model = Whisper(base.config, base.weights)
    generator = torch.Generator().manual_seed(0)
    sounds = [torch.randn(n, generator=generator) / 10 for n in (1, 1000, 47_999, 160_000, 478_000)]
    for batch in ([0], [1], [2, 0, 3], [4, 2]):
        windows = [sounds[n] for n in batch]
        kept_positions = [choose_positions(len(w), factor=25, margin=50) for w in windows]
        with torch.inference_mode():
            mel = LogMel(base.config.num_mels)(windows)
            packed = model.embed_audio(mel, kept_positions)
            written_out = type(mel)(mel.dense(), mel.floor)
            whole = model.embed_audio(written_out, [KeptPositions(1500)] * len(windows)).view(
                len(windows), 1500, -1
            )
        kept = torch.cat([w[e.positions()] for w, e in zip(whole, kept_positions, strict=True)])
        torch.testing.assert_close(packed, kept, rtol=1e-4, atol=1e-4)
