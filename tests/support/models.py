"""Real models from installed packages; a test is skipped where they are not installed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from engine.api import Engine
from engine.checkpoint.locate import MODEL_PACKAGES, ModelFiles, find_packaged
from engine.checkpoint.model_config import ModelConfig, read_model_config
from engine.checkpoint.weights import Weights, load_weights
from engine.config import EngineConfig
from engine.decoding.tokenizer import Tokenizer
from engine.local import load_engine


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A real model, in float32 on the CPU."""

    files: ModelFiles
    config: ModelConfig
    tokenizer: Tokenizer
    weights: Weights  # read only


def load_packaged(name: str) -> LoadedModel:
    """Load an installed model by its short name."""
    files = find_packaged(MODEL_PACKAGES[name], name)
    if files is None:
        pytest.skip(f"the packages of {name} are not installed")
    config = read_model_config(files)
    return LoadedModel(
        files,
        config,
        Tokenizer(files.tokenizer, config.is_multilingual),
        load_weights(files, config),
    )


def run_engine(name: str) -> Iterator[Engine]:
    """Run an engine of a packaged model with the default configuration."""
    if find_packaged(MODEL_PACKAGES[name], name) is None:
        pytest.skip(f"the packages of {name} are not installed")
    loaded = load_engine(EngineConfig(model=name))
    yield loaded
    loaded.close()
