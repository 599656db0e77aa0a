"""Whisper's encoder and decoder, once, for every device.

The model is weights and functions; what belongs to a stream lies in the attention backend's pools.
Tokens and positions of all windows of a batch are packed one after another: N is their sum.
Follows whisper/model.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.attention import Attention
from engine.config import ModelConfig
from engine.extent import Extent
from engine.linear import DenseLinear, Linear
from engine.mel import Mel

LinearMaker = Callable[[Tensor, Tensor | None], Linear]


class LayerNorm:
    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        self._weight = weight
        self._bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self._weight.shape, self._weight, self._bias)


@dataclass(frozen=True, slots=True)
class EncoderLayer:
    attention_norm: LayerNorm
    qkv: Linear
    out: Linear
    ffn_norm: LayerNorm
    up: Linear
    down: Linear


@dataclass(frozen=True, slots=True)
class DecoderLayer:
    attention_norm: LayerNorm
    qkv: Linear
    out: Linear
    cross_norm: LayerNorm
    cross_q: Linear
    cross_out: Linear
    ffn_norm: LayerNorm
    up: Linear
    down: Linear


class Whisper:
    """A loaded model. C hidden size, H heads, D head size, L decoder layers, V vocabulary."""

    def __init__(
        self,
        config: ModelConfig,
        weights: dict[str, Tensor],
        make_linear: LinearMaker = DenseLinear,
    ) -> None:
        """Build the model from `weights.load_weights`; tensors are taken as they are."""
        self.config = config
        self._conv1 = (weights["encoder.conv1.weight"], weights["encoder.conv1.bias"])
        self._conv2 = (weights["encoder.conv2.weight"], weights["encoder.conv2.bias"])
        self._encoder_positions = weights["encoder.positions"]  # (1500, C)
        self._decoder_positions = weights["decoder.positions"]  # (448, C)
        self._embedding = weights["decoder.embedding.weight"]  # (V, C)
        self._vocabulary = make_linear(self._embedding, None)

        def norm(name: str) -> LayerNorm:
            return LayerNorm(weights[f"{name}.weight"], weights[f"{name}.bias"])

        def linear(name: str) -> Linear:
            return make_linear(weights[f"{name}.weight"], weights[f"{name}.bias"])

        self._encoder_layers = [
            EncoderLayer(
                norm(f"encoder.layers.{n}.attention_norm"),
                linear(f"encoder.layers.{n}.attention.qkv"),
                linear(f"encoder.layers.{n}.attention.out"),
                norm(f"encoder.layers.{n}.ffn_norm"),
                linear(f"encoder.layers.{n}.ffn.up"),
                linear(f"encoder.layers.{n}.ffn.down"),
            )
            for n in range(config.encoder_layers)
        ]
        self._decoder_layers = [
            DecoderLayer(
                norm(f"decoder.layers.{n}.attention_norm"),
                linear(f"decoder.layers.{n}.attention.qkv"),
                linear(f"decoder.layers.{n}.attention.out"),
                norm(f"decoder.layers.{n}.cross_norm"),
                linear(f"decoder.layers.{n}.cross.q"),
                linear(f"decoder.layers.{n}.cross.out"),
                norm(f"decoder.layers.{n}.ffn_norm"),
                linear(f"decoder.layers.{n}.ffn.up"),
                linear(f"decoder.layers.{n}.ffn.down"),
            )
            for n in range(config.decoder_layers)
        ]
        self._encoder_norm = norm("encoder.norm")
        self._decoder_norm = norm("decoder.norm")
        # one product for the K and V of all decoder layers
        cross = [f"decoder.layers.{n}.cross.kv" for n in range(config.decoder_layers)]
        self._cross_kv = make_linear(
            torch.cat([weights[f"{name}.weight"] for name in cross]),
            torch.cat([weights[f"{name}.bias"] for name in cross]),
        )
        # heads of each layer whose queries are kept to align words
        self.alignment_heads = {
            layer: [a.head for a in config.alignment_heads if a.layer == layer]
            for layer in sorted({a.layer for a in config.alignment_heads})
        }

    def embed_sound(self, mel: Mel, extents: Sequence[Extent]) -> Tensor:
        """Run the convolutions and add positional embeddings: (N, C) of the kept positions.

        Positions that hear only silence are all the same before the embedding, so they are
        computed once, from a spectrogram that is shortened to the sound and a little silence.
        """
        B, _, num_sound = mel.frames.shape
        # 8 silent frames: a position hears 5, and the last position also hears the end's zeros
        num_frames = min(num_sound + num_sound % 2 + 8, 2 * self.config.max_source_positions)
        x = mel.dense(num_frames).to(self._embedding.dtype)
        x = F.gelu(F.conv1d(x, *self._conv1, padding=1))
        x = F.gelu(F.conv1d(x, *self._conv2, stride=2, padding=1))  # (B, C, num_frames // 2)
        num_computed = num_frames // 2
        last = self.config.max_source_positions - 1
        rows, kept = [], []
        for b, extent in enumerate(extents):
            at = extent.positions(x.device)
            silent = at.clamp(max=num_computed - 3)
            where = torch.where(at == last, num_computed - 1, silent)
            rows.append(where + b * num_computed if num_computed <= last else at + b * num_computed)
            kept.append(at)
        packed = x.transpose(1, 2).flatten(0, 1)[torch.cat(rows)]
        return packed + self._encoder_positions[torch.cat(kept)]

    def encode(self, x: Tensor, attention: Attention) -> Tensor:
        """Run the encoder over planned windows: (N, C) from embed_sound -> (N, C)."""
        N, C = x.shape
        heads = (self.config.num_heads, self.config.head_dim)
        for layer in self._encoder_layers:
            q, k, v = layer.qkv(layer.attention_norm(x)).view(N, 3, *heads).unbind(1)
            x = x + layer.out(attention.run_encoder(q, k, v).reshape(N, C))
            x = x + layer.down(F.gelu(layer.up(layer.ffn_norm(x))))
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
            q, k, v = layer.qkv(layer.attention_norm(x)).view(N, 3, *heads).unbind(1)
            x = x + layer.out(attention.run_self(n, q, k, v).reshape(N, C))
            q = layer.cross_q(layer.cross_norm(x)).view(N, *heads)
            if alignment_queries is not None and n in self.alignment_heads:
                alignment_queries.append(q[:, self.alignment_heads[n]])
            x = x + layer.cross_out(attention.run_cross(n, q).reshape(N, C))
            x = x + layer.down(F.gelu(layer.up(layer.ffn_norm(x))))
        return self._decoder_norm(x)

    def compute_logits(self, x: Tensor) -> Tensor:
        """Project onto the vocabulary: (N, C) -> (N, V)."""
        return self._vocabulary(x)
