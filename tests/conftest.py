"""What several tests share: recordings, real models, and the reference implementation.

Fixtures skip, saying why, where this machine lacks what they give.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, settings

import engine  # noqa: F401 - says how OpenMP waits, before a test module loads torch

# a busy machine makes no test wrong, and the same commit gives the same answer every time
settings.register_profile(
    "wordwire", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("wordwire")

SPEECH = Path(__file__).parents[2] / "shared/data/speech"


@pytest.fixture(autouse=True)
def keep_logging() -> Iterator[None]:
    """Undo what a test sets up: its handlers write to a stream that is closed behind it."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@dataclass(frozen=True, slots=True)
class Recording:
    """A row of the speech data's manifest."""

    path: Path
    text: str
    language: str  # "" where nobody speaks
    category: str
    duration_s: float
    sample_rate: int
    num_channels: int

    def read(self) -> npt.NDArray[np.float32]:
        """Decode to mono float32 at 16 kHz, (T,)."""
        soundfile = pytest.importorskip("soundfile")
        soxr = pytest.importorskip("soxr")
        samples, rate = soundfile.read(self.path, dtype="float32", always_2d=True)
        mono = samples.mean(axis=1)
        if rate != 16_000:
            mono = soxr.resample(mono, rate, 16_000)
        return np.ascontiguousarray(mono, dtype=np.float32)


@pytest.fixture(scope="session")
def recordings() -> list[Recording]:
    """All recordings of the speech data, in the manifest's order."""
    manifest = SPEECH / "manifest.jsonl"
    if not manifest.is_file():
        pytest.skip("the speech data is not on this machine")
    rows = [json.loads(line) for line in manifest.read_text().splitlines()]
    return [
        Recording(
            SPEECH / row["file"],
            row["text"],
            row["language"],
            row["category"],
            row["duration_s"],
            row["sample_rate"],
            row["channels"],
        )
        for row in rows
    ]


@pytest.fixture(scope="session")
def read_clips(recordings: list[Recording]) -> list[Recording]:
    """Read English speech of 2 to 29 s."""
    return [r for r in recordings if r.category == "read_en" and 2 <= r.duration_s <= 29]


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A real model, in float32 on the CPU."""

    files: Any  # engine.checkpoint.locate.ModelFiles
    config: Any  # engine.config.ModelConfig
    tokenizer: Any  # engine.decoding.tokenizer.Tokenizer
    weights: dict[str, Any]  # engine.checkpoint.weights.Weights: read only


@pytest.fixture(scope="session")
def load_model() -> Callable[[str], LoadedModel]:
    """Load an installed model by its short name, once a session."""
    loaded: dict[str, LoadedModel] = {}

    def load(name: str) -> LoadedModel:
        from engine.checkpoint.locate import MODEL_PACKAGES, find_packaged
        from engine.checkpoint.model_config import read_model_config
        from engine.checkpoint.weights import load_weights
        from engine.decoding.tokenizer import Tokenizer

        if name not in loaded:
            files = find_packaged(MODEL_PACKAGES[name], name)
            if files is None:
                pytest.skip(f"the packages of {name} are not installed")
            config = read_model_config(files)
            loaded[name] = LoadedModel(
                files,
                config,
                Tokenizer(files.tokenizer, config.is_multilingual),
                load_weights(files, config),
            )
        return loaded[name]

    return load


@pytest.fixture(scope="session")
def base(load_model: Callable[[str], LoadedModel]) -> LoadedModel:
    return load_model("base")


@pytest.fixture(scope="session")
def tiny_en(load_model: Callable[[str], LoadedModel]) -> LoadedModel:
    return load_model("tiny.en")


def run_engine(name: str) -> Iterator[Any]:
    """Run an engine of a packaged model, as it is configured without a word."""
    from engine.checkpoint.locate import MODEL_PACKAGES, find_packaged
    from engine.config import EngineConfig
    from engine.local import load_engine

    if find_packaged(MODEL_PACKAGES[name], name) is None:
        pytest.skip(f"the packages of {name} are not installed")
    loaded = load_engine(EngineConfig(model=name))
    yield loaded
    loaded.close()


@pytest.fixture(scope="session")
def base_engine() -> Iterator[Any]:
    yield from run_engine("base")


@pytest.fixture(scope="session")
def reference() -> Callable[[LoadedModel], Any]:
    """Build transformers' WhisperForConditionalGeneration of the same weights, once a session."""
    built: dict[str, Any] = {}

    def build(model: LoadedModel) -> Any:
        pytest.importorskip("transformers")
        if model.files.name not in built:
            built[model.files.name] = build_reference(model)
        return built[model.files.name]

    return build


def build_reference(model: LoadedModel) -> Any:
    import torch
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config, tokenizer = model.config, model.tokenizer
    whisper = WhisperForConditionalGeneration(
        WhisperConfig(
            vocab_size=config.vocab_size,
            num_mel_bins=config.num_mels,
            encoder_layers=config.encoder_layers,
            encoder_attention_heads=config.num_heads,
            decoder_layers=config.decoder_layers,
            decoder_attention_heads=config.num_heads,
            encoder_ffn_dim=config.encoder_ffn,
            decoder_ffn_dim=config.decoder_ffn,
            d_model=config.d_model,
            max_source_positions=config.max_source_positions,
            max_target_positions=config.max_target_positions,
            pad_token_id=tokenizer.eot,
            bos_token_id=tokenizer.eot,
            eos_token_id=tokenizer.eot,
            decoder_start_token_id=tokenizer.sot,
            attn_implementation="eager",  # the one that also gives cross-attention weights
        )
    )
    missing, unexpected = whisper.load_state_dict(to_hugging_face(model), strict=False)
    assert not unexpected and set(missing) <= {"proj_out.weight"}, (missing, unexpected)
    generation = whisper.generation_config
    generation.suppress_tokens = list(config.suppress_tokens)
    generation.begin_suppress_tokens = list(config.begin_suppress_tokens)
    generation.alignment_heads = [[a.layer, a.head] for a in config.alignment_heads]
    generation.no_timestamps_token_id = tokenizer.no_timestamps
    generation.prev_sot_token_id = tokenizer.start_of_prev
    generation.max_initial_timestamp_index = 50
    generation.is_multilingual = tokenizer.is_multilingual
    generation.max_length = config.max_target_positions
    generation.forced_decoder_ids = None
    if tokenizer.is_multilingual:
        generation.lang_to_id = {f"<|{code}|>": id for code, id in tokenizer.languages.items()}
        generation.task_to_id = {
            "transcribe": tokenizer.transcribe,
            "translate": tokenizer.translate,
        }
    with torch.no_grad():
        return whisper.eval()


def to_hugging_face(model: LoadedModel) -> dict[str, Any]:
    """Name our weights as transformers does: the inverse of `engine.checkpoint.weights`."""
    import torch

    from engine.checkpoint.weights import list_sources

    state: dict[str, Any] = {}
    for source in list_sources(model.config):
        tensor = model.weights[source.name]
        for name, part in zip(
            source.hugging_face, tensor.chunk(len(source.hugging_face)), strict=True
        ):
            if name.endswith("k_proj.bias"):
                assert torch.count_nonzero(part) == 0
            else:
                state[name] = part
    return state


@pytest.fixture(scope="session")
def feature_extractor() -> Callable[[int], Any]:
    """Build transformers' WhisperFeatureExtractor for a number of mel bands."""
    transformers = pytest.importorskip("transformers")
    built: dict[int, Any] = {}

    def build(num_mels: int) -> Any:
        if num_mels not in built:
            built[num_mels] = transformers.WhisperFeatureExtractor(feature_size=num_mels)
        return built[num_mels]

    return build
