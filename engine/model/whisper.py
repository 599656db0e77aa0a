"""Whisper's encoder and decoder, once, for every device.

The model is weights and functions; what belongs to a stream lies in the attention backend's pools.
Tokens and positions of all windows of a batch are packed one after another: N is their sum.
Follows whisper/model.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.checkpoint.model_config import ModelConfig
from engine.model.attention import Attention
from engine.model.folded_tail import KeptPositions
from engine.model.layers import Add, Layers, LinearMaker, Pair, PlainLayers, Project
from engine.model.linear import DenseLinear
from engine.model.mel import Mel


@dataclass(frozen=True, slots=True)
class EncoderLayer:
    """The parts of an encoder layer between its attentions, in the order in which they run."""

    qkv: Project
    out: Add
    up: Project
    down: Add


@dataclass(frozen=True, slots=True)
class DecoderLayer:
    """The same of a decoder layer."""

    qkv: Project
    out: Add
    cross_q: Project
    cross_out: Add
    up: Project
    down: Add


class Whisper:
    """A loaded model. C hidden size, H heads, D head size, L decoder layers, V vocabulary."""

    def __init__(
        self,
        config: ModelConfig,
        weights: dict[str, Tensor],
        make_linear: LinearMaker = DenseLinear,
        *,
        encoder: Layers | None = None,
        decoder: Layers | None = None,
    ) -> None:
        """Build the model from `weights.load_weights`; tensors are taken as they are.

        Args:
            make_linear: makes the linear layers of a stack that is not given.
            encoder: makes the encoder's layers, and the projection to cross-attention K/V.
            decoder: makes the decoder's layers.
        """
        encoder = encoder or PlainLayers(make_linear)
        decoder = decoder or PlainLayers(make_linear)
        self.config = config
        self._encoder_positions = weights["encoder.positions"]  # (1500, C)
        self._decoder_positions = weights["decoder.positions"]  # (448, C)
        self._embedding = weights["decoder.embedding.weight"]  # (V, C)

        pair = partial(_pair, weights)
        self._conv1 = encoder.convolve(pair("encoder.conv1"), 1)
        self._conv2 = encoder.convolve(pair("encoder.conv2"), 2)
        self._encoder_layers = [
            _make_encoder_layer(encoder, weights, n) for n in range(config.encoder_layers)
        ]
        self._decoder_layers = [
            _make_decoder_layer(decoder, weights, n) for n in range(config.decoder_layers)
        ]
        self._encoder_norm = encoder.norm(pair("encoder.norm"))
        self._decoder_norm = decoder.norm(pair("decoder.norm"))
        self._vocabulary = decoder.logits(self._embedding)
        # one product for the K and V of all decoder layers
        cross = [pair(f"decoder.layers.{n}.cross.kv") for n in range(config.decoder_layers)]
        self._cross_kv = encoder.linear(
            Pair(torch.cat([kv.weight for kv in cross]), torch.cat([kv.bias for kv in cross]))
        )
        # heads of each layer whose queries are kept to align words
        self.alignment_heads = {
            layer: [a.head for a in config.alignment_heads if a.layer == layer]
            for layer in sorted({a.layer for a in config.alignment_heads})
        }

    def embed_audio(self, mel: Mel, kept_positions: Sequence[KeptPositions]) -> Tensor:
        """Run the convolutions and add positional embeddings: (N, C) of the kept positions.

        Positions that see only silence are all the same before the embedding, so they are
        computed once, from a spectrogram that is shortened to the audio and a little silence.
        """
        B, _, num_sound = mel.frames.shape
        # 8 silent frames: a position sees 5, and the last position also sees the end's zeros
        num_frames = min(num_sound + num_sound % 2 + 8, 2 * self.config.max_source_positions)
        x = mel.dense(num_frames).to(self._embedding.dtype)
        x = self._conv2(self._conv1(x))  # (B, C, num_frames // 2)
        num_computed = num_frames // 2
        last = self.config.max_source_positions - 1
        rows, columns = [], []
        for b, kept in enumerate(kept_positions):
            at = kept.positions()
            silent = at.clamp(max=num_computed - 3)
            where = torch.where(at == last, num_computed - 1, silent)
            rows.append(where + b * num_computed if num_computed <= last else at + b * num_computed)
            columns.append(at)
        packed = x.transpose(1, 2).flatten(0, 1)[torch.cat(rows).to(x.device)]
        return packed + self._encoder_positions[torch.cat(columns).to(x.device)]

    def encode(self, x: Tensor, attention: Attention) -> Tensor:
        """Run the encoder over planned windows: (N, C) from embed_audio -> (N, C).

        It may overwrite x.
        """
        for number in range(len(self._encoder_layers)):
            x = self.encode_layer(number, x, attention)
        return self.finish_encoding(x)

    def encode_layer(self, number: int, x: Tensor, attention: Attention) -> Tensor:
        """Run one layer of the encoder, without the norm behind the last: (N, C) -> (N, C)."""
        N, C = x.shape
        layer = self._encoder_layers[number]
        heads = (self.config.num_heads, self.config.head_dim)
        q, k, v = layer.qkv(x).view(N, 3, *heads).unbind(1)
        x = layer.out(x, attention.run_encoder(q, k, v).reshape(N, C))
        return layer.down(x, layer.up(x))

    def finish_encoding(self, x: Tensor) -> Tensor:
        """Normalise what the last layer of the encoder gave: (N, C) -> (N, C)."""
        return self._encoder_norm(x)

    def project_cross(self, x: Tensor) -> Tensor:
        """Compute the cross-attention K/V of all decoder layers: (N, C) -> (N, L, 2, H, D)."""
        config = self.config
        shape = (config.decoder_layers, 2, config.num_heads, config.head_dim)
        return self._cross_kv(x).view(-1, *shape)

    def decode(
        self,
        tokens: Tensor,
        positions: Tensor,
        attention: Attention,
        alignment_queries: list[Tensor] | None = None,
    ) -> Tensor:
        """Run the decoder over planned rows.

        Args:
            tokens: (N,) int64.
            positions: (N,) int64, below 448.
            attention: with plan_decoder done for these rows.
            alignment_queries: gets one (N, heads, D) for each layer of alignment_heads.

        Returns:
            (N, C), normalised: what compute_logits takes.
        """
        N, C = tokens.shape[0], self.config.d_model
        heads = (self.config.num_heads, self.config.head_dim)
        x = F.embedding(tokens, self._embedding) + F.embedding(positions, self._decoder_positions)
        for n, layer in enumerate(self._decoder_layers):
            q, k, v = layer.qkv(x).view(N, 3, *heads).unbind(1)
            x = layer.out(x, attention.run_self(n, q, k, v).reshape(N, C))
            q = layer.cross_q(x).view(N, *heads)
            if alignment_queries is not None and n in self.alignment_heads:
                # stacked, as a list of indices could not be captured into a CUDA graph
                kept = [q[:, head] for head in self.alignment_heads[n]]
                alignment_queries.append(torch.stack(kept, dim=1))
            x = layer.cross_out(x, attention.run_cross(n, q).reshape(N, C))
            x = layer.down(x, layer.up(x))
        return self._decoder_norm(x)

    def compute_logits(self, x: Tensor) -> Tensor:
        """Project onto the vocabulary: (N, C) -> (N, V)."""
        return self._vocabulary(x)


def _make_encoder_layer(layers: Layers, weights: dict[str, Tensor], number: int) -> EncoderLayer:
    pair = partial(_pair, weights, within=f"encoder.layers.{number}.")
    return EncoderLayer(
        layers.project(pair("attention_norm"), pair("attention.qkv")),
        layers.add(pair("attention.out")),
        layers.project(pair("ffn_norm"), pair("ffn.up"), with_gelu=True),
        layers.add(pair("ffn.down")),
    )


def _make_decoder_layer(layers: Layers, weights: dict[str, Tensor], number: int) -> DecoderLayer:
    pair = partial(_pair, weights, within=f"decoder.layers.{number}.")
    return DecoderLayer(
        layers.project(pair("attention_norm"), pair("attention.qkv")),
        layers.add(pair("attention.out")),
        layers.project(pair("cross_norm"), pair("cross.q")),
        layers.add(pair("cross.out")),
        layers.project(pair("ffn_norm"), pair("ffn.up"), with_gelu=True),
        layers.add(pair("ffn.down")),
    )


def _pair(weights: dict[str, Tensor], name: str, within: str = "") -> Pair:
    return Pair(weights[f"{within}{name}.weight"], weights[f"{within}{name}.bias"])
