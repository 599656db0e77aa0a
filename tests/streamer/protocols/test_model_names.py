import pytest

from engine.api import ModelInfo
from streamer.protocols.model_names import ALIASES, is_served, names

INFO = ModelInfo("base", ("en",), "cpu", "float32")


@pytest.mark.parametrize(
    "name", ["base", "whisper-base", "openai/whisper-base", "Systran/faster-whisper-base", *ALIASES]
)
def test_names_of_the_same_model_are_served(name: str) -> None:
    assert is_served(name, INFO)


@pytest.mark.parametrize("name", ["", "small", "whisper-small", "base.en", "gpt-5", "whisper-2"])
def test_other_names_are_not(name: str) -> None:
    assert not is_served(name, INFO)


def test_a_folder_is_served_by_its_name() -> None:
    info = ModelInfo("/models/whisper-large-v3/", ("en",), "cpu", "float32")
    assert is_served("openai/whisper-large-v3", info) and is_served("large-v3", info)


def test_the_served_name_is_listed_first() -> None:
    assert names(INFO)[0] == "base" and len(set(names(INFO))) == len(names(INFO))
