"""Fixtures of many tests: a service, recordings, real models, the reference implementation.

A fixture skips, and says why, where this machine lacks what it needs. It imports what it needs
itself, so that tests of a client do not load torch.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

import engine  # noqa: F401 - says how OpenMP waits, before a test module loads torch
from tests.support.recordings import Recording, read_manifest

if TYPE_CHECKING:
    from engine.api import Engine
    from streamer.config import ServerConfig
    from tests.support.models import LoadedModel
    from tests.support.running_service import Running

# a busy machine makes no test wrong, and the same commit gives the same answer every time
settings.register_profile(
    "wordwire", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("wordwire")


@pytest.fixture(autouse=True)
def keep_logging() -> Iterator[None]:
    """Undo what a test sets up: its handlers write to a stream that is closed behind it."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def served_engine() -> Engine:
    """The engine of `service`; a module that needs another overrides this."""
    from tests.support.engines import CountingEngine

    return CountingEngine()


@pytest.fixture
def service_config() -> ServerConfig:
    """The configuration of `service`; a module that needs another overrides this."""
    from tests.support.running_service import CONFIG

    return CONFIG


@pytest.fixture
async def service(served_engine: Engine, service_config: ServerConfig) -> AsyncIterator[Running]:
    """A service on a free port."""
    from tests.support.running_service import running

    async with running(lambda: served_engine, service_config) as found:
        yield found


@pytest.fixture(scope="session")
def recordings() -> list[Recording]:
    """All recordings of the speech data, in the manifest's order."""
    return read_manifest()


@pytest.fixture(scope="session")
def read_clips(recordings: list[Recording]) -> list[Recording]:
    """Read English speech of 2 to 29 s."""
    return [r for r in recordings if r.category == "read_en" and 2 <= r.duration_s <= 29]


@pytest.fixture(scope="session")
def load_model() -> Callable[[str], LoadedModel]:
    """Load an installed model by its short name, once a session."""
    loaded: dict[str, LoadedModel] = {}

    def load(name: str) -> LoadedModel:
        from tests.support.models import load_packaged

        if name not in loaded:
            loaded[name] = load_packaged(name)
        return loaded[name]

    return load


@pytest.fixture(scope="session")
def base(load_model: Callable[[str], LoadedModel]) -> LoadedModel:
    return load_model("base")


@pytest.fixture(scope="session")
def tiny_en(load_model: Callable[[str], LoadedModel]) -> LoadedModel:
    return load_model("tiny.en")


@pytest.fixture(scope="session")
def base_engine() -> Iterator[Engine]:
    from tests.support.models import run_engine

    yield from run_engine("base")


@pytest.fixture(scope="session")
def reference() -> Callable[[LoadedModel], Any]:
    """Build transformers' WhisperForConditionalGeneration of the same weights, once a session."""
    built: dict[str, Any] = {}

    def build(model: LoadedModel) -> Any:
        from tests.support.reference import build_reference

        if model.files.name not in built:
            built[model.files.name] = build_reference(model)
        return built[model.files.name]

    return build


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
