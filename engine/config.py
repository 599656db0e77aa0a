"""What an operator may set: how an engine runs, for any model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")

DEVICES = ("auto", "cpu", "cuda")
DTYPES = ("auto", "float32", "bfloat16", "float16", "int8", "fp8")


def option(default: T, meaning: str) -> T:
    """Declare a field: its default and what help says of it."""
    declared: T = field(default=default, metadata={"help": meaning})
    return declared


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """How an engine runs. Checks itself; raises ValueError."""

    model: str = option(
        "base",
        "folder, hub id (owner/name), or short name (tiny.en, base, small, ..., large-v3-turbo)",
    )
    device: str = option(
        "auto",
        '"cuda", "cpu", or "auto": cuda where there is one',
    )
    dtype: str = option(
        "auto",
        'of weights and activations: "float32", "bfloat16", "float16", "int8" (linear layers only, '
        """the rest in float32; on a CPU), "fp8" (the encoder's large products only, the rest in """
        """bfloat16; on a GPU), or "auto": the device's best""",
    )
    encoder_tail: str | int = option(
        "auto",
        'silence after the audio: "full" as trained, a factor r (keep every r-th position), '
        'or "auto"',
    )
    tail_margin_s: float = option(
        0.5,
        "silence after the audio that is kept at full resolution when the tail is folded, seconds",
    )
    max_streams: int | None = option(
        None,
        "streams open at once, more are refused; None: 256 on a CPU, 4,096 on a GPU",
    )
    max_batch: int | None = option(
        None,
        "sequences in one decode step; None: 32 on a CPU, 256 on a GPU",
    )
    max_encode_batch: int | None = option(
        None,
        "windows in one encoder call; None: 8 on a CPU, 32 on a GPU",
    )
    self_kv_bytes: int | None = option(
        None,
        "memory for self-attention K/V, bytes; None: as much as max_batch full sequences need",
    )
    cross_kv_bytes: int | None = option(
        None,
        "memory for cross-attention K/V, bytes; None: as much as max_batch windows of 30 s need",
    )
    num_threads: int | None = option(
        None,
        "threads that encode on a CPU, one fewer while the decoder has its own; None: one for "
        "each core that this process may use",
    )
    use_drafts: bool = option(
        True,
        "speculative decoding: verify a stream's previous hypothesis in one step instead of "
        "decoding it again",
    )
    max_compression_ratio: float = option(
        2.4,
        "a final whose text compresses better than this is a loop and is decoded again at a "
        "higher temperature",
    )
    min_avg_logprob: float = option(
        -1.0,
        "a final whose mean log-probability is below this is decoded again at a higher temperature",
    )
    max_no_speech_probability: float = option(
        0.6,
        "a window above this no-speech probability and below min_avg_logprob is silence",
    )

    def __post_init__(self) -> None:
        if not self.model:
            raise ValueError("model: expected a folder, a hub id or a short name, got nothing")
        if self.device not in DEVICES:
            raise ValueError(f"device: expected one of {', '.join(DEVICES)}, got {self.device}")
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype: expected one of {', '.join(DTYPES)}, got {self.dtype}")
        tail = self.encoder_tail
        if isinstance(tail, bool) or (
            tail < 2 if isinstance(tail, int) else tail not in ("auto", "full")
        ):
            raise ValueError(f"encoder_tail: expected auto, full or a factor >= 2, got {tail}")
        if not 0 <= self.tail_margin_s <= 30:
            raise ValueError(f"tail_margin_s: expected 0 to 30, got {self.tail_margin_s}")
        for name in (
            "max_streams",
            "max_batch",
            "max_encode_batch",
            "self_kv_bytes",
            "cross_kv_bytes",
            "num_threads",
        ):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}: expected at least 1, got {value}")
        if not 0 <= self.max_no_speech_probability <= 1:
            raise ValueError(
                f"max_no_speech_probability: expected 0 to 1, got {self.max_no_speech_probability}"
            )
