"""Load a Whisper model's weights from either format into one dictionary of tensors.

The names and shapes that come out, with C = d_model, F = feed-forward size, V = vocabulary:

    encoder.conv1.{weight,bias}                (C, mels, 3)
    encoder.conv2.{weight,bias}                (C, C, 3)
    encoder.positions                          (1500, C)
    encoder.layers.N.attention_norm.{weight,bias}
    encoder.layers.N.attention.qkv.{weight,bias}   (3C, C): rows of q, then k, then v; k's bias is 0
    encoder.layers.N.attention.out.{weight,bias}   (C, C)
    encoder.layers.N.ffn_norm.{weight,bias}
    encoder.layers.N.ffn.up.{weight,bias}          (F, C)
    encoder.layers.N.ffn.down.{weight,bias}        (C, F)
    encoder.norm.{weight,bias}
    decoder.embedding.weight                   (V, C), also the output projection
    decoder.positions                          (448, C)
    decoder.layers.N.  as the encoder's, and
    decoder.layers.N.cross_norm.{weight,bias}
    decoder.layers.N.cross.q.{weight,bias}         (C, C)
    decoder.layers.N.cross.kv.{weight,bias}        (2C, C): rows of k, then v; k's bias is 0
    decoder.layers.N.cross.out.{weight,bias}       (C, C)
    decoder.norm.{weight,bias}

Linear weights are (out, in) as in torch.nn.Linear. Queries are not scaled: 1 / sqrt(D) is left to
attention.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from engine.checkpoint.ctranslate2 import Checkpoint, open_checkpoint
from engine.checkpoint.locate import ModelError, ModelFiles, WeightFormat
from engine.checkpoint.model_config import ModelConfig

Weights = dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class Source:
    """One of our tensors, and the stored ones it is made of."""

    name: str
    shape: tuple[int, ...]
    hugging_face: tuple[str, ...]  # joined along the first dimension; an absent bias is zero
    ctranslate2: str


def load_weights(
    files: ModelFiles,
    config: ModelConfig,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> Weights:
    """Read all weights, one tensor at a time, so that little more than the result is in memory.

    Args:
        files: from `locate.resolve_model`.
        config: from `config.read_model_config` of the same files; every shape is checked with it.
        dtype: of the tensors returned; int8 and int16 weights are multiplied out.
        device: where they go.

    Returns:
        Contiguous tensors that share nothing with the files.

    Raises:
        ModelError: a file is cut off, damaged, or holds other tensors than the config describes.
    """
    match files.format:
        case WeightFormat.CTRANSLATE2:
            with open_checkpoint(files.weights) as checkpoint:
                return collect(
                    files,
                    config,
                    dtype,
                    device,
                    lambda source: read_ctranslate2(checkpoint, source),
                )
        case WeightFormat.SAFETENSORS:
            with ExitStack() as stack:
                tensors = open_safetensors(files, stack)
                return collect(
                    files, config, dtype, device, lambda source: read_hugging_face(tensors, source)
                )


def collect(
    files: ModelFiles,
    config: ModelConfig,
    dtype: torch.dtype,
    device: torch.device | str,
    read: Callable[[Source], Tensor],
) -> Weights:
    """Read every tensor of a model and check its shape.

    Raises:
        ModelError: one is missing, damaged, or of another shape.
    """
    weights: Weights = {}
    for source in list_sources(config):
        try:
            tensor = read(source)
        except KeyError as error:
            raise ModelError(f"{files.weights[0]} has no {error.args[0]}") from None
        except SafetensorError as error:
            raise ModelError(f"{files.weights[0]} is damaged: {error}") from None
        if tuple(tensor.shape) != source.shape:
            raise ModelError(
                f"{files.weights[0]}: expected {source.name} of shape {source.shape}, "
                f"got {tuple(tensor.shape)}"
            )
        weights[source.name] = tensor.to(device=device, dtype=dtype).contiguous()
    return weights


def list_sources(config: ModelConfig) -> Iterator[Source]:
    """Name every tensor of a model of these dimensions, and where each format keeps it."""
    C = config.d_model
    yield from _pair("encoder.conv1", (C, config.num_mels, 3), ["encoder.conv1"], "encoder/conv1")
    yield from _pair("encoder.conv2", (C, C, 3), ["encoder.conv2"], "encoder/conv2")
    yield Source(
        "decoder.embedding.weight",
        (config.vocab_size, C),
        ("model.decoder.embed_tokens.weight",),
        "decoder/embeddings/weight",
    )
    for side, num_positions, num_layers, F in (
        ("encoder", config.max_source_positions, config.encoder_layers, config.encoder_ffn),
        ("decoder", config.max_target_positions, config.decoder_layers, config.decoder_ffn),
    ):
        yield Source(
            f"{side}.positions",
            (num_positions, C),
            (f"model.{side}.embed_positions.weight",),
            f"{side}/position_encodings/encodings",
        )
        yield from _pair(f"{side}.norm", (C,), [f"{side}.layer_norm"], f"{side}/layer_norm")
        for n in range(num_layers):
            for part in _list_layer(C, F, has_cross=side == "decoder"):
                yield from _pair(
                    f"{side}.layers.{n}.{part.name}",
                    part.shape,
                    [f"{side}.layers.{n}.{name}" for name in part.hugging_face],
                    f"{side}/layer_{n}/{part.ctranslate2}",
                )


def _list_layer(C: int, F: int, *, has_cross: bool) -> Iterator[Source]:
    """Name the parts of one layer, below the layer's own name."""
    qkv = tuple(f"self_attn.{x}_proj" for x in "qkv")
    yield Source("attention_norm", (C,), ("self_attn_layer_norm",), "self_attention/layer_norm")
    yield Source("attention.qkv", (3 * C, C), qkv, "self_attention/linear_0")
    yield Source("attention.out", (C, C), ("self_attn.out_proj",), "self_attention/linear_1")
    if has_cross:
        kv = tuple(f"encoder_attn.{x}_proj" for x in "kv")
        yield Source("cross_norm", (C,), ("encoder_attn_layer_norm",), "attention/layer_norm")
        yield Source("cross.q", (C, C), ("encoder_attn.q_proj",), "attention/linear_0")
        yield Source("cross.kv", (2 * C, C), kv, "attention/linear_1")
        yield Source("cross.out", (C, C), ("encoder_attn.out_proj",), "attention/linear_2")
    yield Source("ffn_norm", (C,), ("final_layer_norm",), "ffn/layer_norm")
    yield Source("ffn.up", (F, C), ("fc1",), "ffn/linear_0")
    yield Source("ffn.down", (C, F), ("fc2",), "ffn/linear_1")


def _pair(
    name: str, shape: tuple[int, ...], hugging_face: Sequence[str], ct2: str
) -> Iterator[Source]:
    """Name a weight of this shape and its bias."""
    for part in ("weight", "bias"):
        stored = {"weight": "gamma", "bias": "beta"}[part] if "norm" in ct2 else part
        yield Source(
            f"{name}.{part}",
            shape if part == "weight" else shape[:1],
            tuple(f"model.{n}.{part}" for n in hugging_face),
            f"{ct2}/{stored}",
        )


def read_ctranslate2(checkpoint: Checkpoint, source: Source) -> Tensor:
    """Read one tensor and undo its quantisation.

    CTranslate2 stores round(w * scale), with a scale for each row (int8) or for all (int16).
    """
    tensor = checkpoint.read(source.ctranslate2)
    scale_name = f"{source.ctranslate2}_scale"
    if scale_name not in checkpoint.variables:
        return tensor
    scale = checkpoint.read(scale_name).float()
    return tensor.float() / scale.view(-1, *(1,) * (tensor.dim() - 1))


def open_safetensors(files: ModelFiles, stack: ExitStack) -> dict[str, Callable[[], Tensor]]:
    """Map all shards; give for each stored name a function that reads its tensor."""
    tensors: dict[str, Callable[[], Tensor]] = {}
    for path in files.weights:
        try:
            shard = stack.enter_context(safe_open(path, framework="pt"))
            names = list(shard.keys())
        except (SafetensorError, OSError) as error:
            raise ModelError(f"{path} cannot be read: {error}") from None
        for name in names:
            # some folders were saved from the bare model, without its head
            full_name = name if name.startswith(("model.", "proj_out.")) else f"model.{name}"
            tensors[full_name] = partial(shard.get_tensor, name)
    return tensors


def read_hugging_face(tensors: dict[str, Callable[[], Tensor]], source: Source) -> Tensor:
    """Read one tensor, joining q, k and v; k has no bias there, so ours is zero."""
    if len(source.hugging_face) == 1:
        return tensors[source.hugging_face[0]]()
    parts = []
    for name in source.hugging_face:
        if name.endswith(".k_proj.bias") and name not in tensors:
            parts.append(torch.zeros(source.shape[0] // len(source.hugging_face)))
        else:
            parts.append(tensors[name]())
    return torch.cat([part.to(parts[-1].dtype) for part in parts])
