"""Weights come out the same, whichever format they lie in, and never half."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.checkpoint.locate import ModelError, ModelFiles, find_files
from engine.checkpoint.model_config import read_model_config
from engine.checkpoint.weights import Weights, list_sources, load_weights
from tests.support.small_model import CONFIG, make_weights, write_ctranslate2, write_hugging_face


def load(files: ModelFiles, dtype: torch.dtype = torch.float32) -> Weights:
    return load_weights(files, CONFIG, dtype)


def assert_same(found: Weights, expected: Weights) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in found.items():
        assert torch.equal(tensor, expected[name]), name


def test_both_formats_give_the_weights_that_were_written(tmp_path: Path) -> None:
    weights = make_weights()
    write_hugging_face(tmp_path / "hf", weights)
    write_ctranslate2(tmp_path / "ct2", weights)
    assert_same(load(find_files(tmp_path / "hf")), weights)
    assert_same(load(find_files(tmp_path / "ct2")), weights)


def test_shards_give_what_one_file_gives(tmp_path: Path) -> None:
    weights = make_weights()
    write_hugging_face(tmp_path, weights, num_shards=3)
    files = find_files(tmp_path)
    assert len(files.weights) == 3
    assert_same(load(files), weights)


def test_weights_saved_without_the_head_are_understood(tmp_path: Path) -> None:
    weights = make_weights()
    write_hugging_face(tmp_path, weights)
    path = tmp_path / "model.safetensors"
    save_file({k.removeprefix("model."): v for k, v in load_file(path).items()}, path)
    assert_same(load(find_files(tmp_path)), weights)


@pytest.mark.parametrize("split", [1, 5, 300, 50_000, 100_001])
def test_parts_are_read_as_one_file(tmp_path: Path, split: int) -> None:
    weights = make_weights()
    write_ctranslate2(tmp_path, weights)
    data = (tmp_path / "model.bin").read_bytes()
    parts = [tmp_path / name for name in ("one", "two", "three")]
    for path, piece in zip(
        parts, (data[:split], data[split : 2 * split], data[2 * split :]), strict=True
    ):
        path.write_bytes(piece)
    whole = find_files(tmp_path)
    files = ModelFiles("x", whole.format, tuple(parts), whole.config, whole.tokenizer)
    assert_same(load(files), weights)
    assert read_model_config(files) == read_model_config(whole)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_weights_come_in_the_type_asked_for(tmp_path: Path, dtype: torch.dtype) -> None:
    weights = make_weights()
    write_ctranslate2(tmp_path, weights)
    found = load(find_files(tmp_path), dtype)
    assert_same(found, {name: tensor.to(dtype) for name, tensor in weights.items()})


@pytest.mark.parametrize(
    ("quantization", "error"),
    [
        ("float32", 0.0),
        ("float16", 2**-9),
        ("bfloat16", 2**-7),
        ("int8", 1 / 127),
        ("int8_float16", 1 / 127),
        ("int16", 1 / 512),
    ],
)
def test_what_ctranslate2_writes_is_read(tmp_path: Path, quantization: str, error: float) -> None:
    """The file comes from CTranslate2's own code, with its names, types, scales and aliases."""
    specs = pytest.importorskip("ctranslate2.specs")
    weights = make_weights()
    spec = specs.WhisperSpec(
        CONFIG.encoder_layers, CONFIG.num_heads, CONFIG.decoder_layers, CONFIG.num_heads
    )
    for source in list_sources(CONFIG):
        *path, last = source.ctranslate2.split("/")
        place: Any = spec
        for step in path:
            if hasattr(place, step):
                place = getattr(place, step)
            else:  # layer_2 is the third of a list called layer
                name, number = step.split("_")
                place = getattr(place, name)[int(number)]
        # a copy: quantisation works in place
        setattr(place, last, weights[source.name].numpy().copy())
    spec.decoder.projection.weight = weights["decoder.embedding.weight"].numpy().copy()
    spec.decoder.scale_embeddings = False
    spec.register_vocabulary([str(n) for n in range(CONFIG.vocab_size)])
    spec.config.alignment_heads = [[1, 0], [1, 1]]
    spec.config.suppress_ids = [1, 2]
    spec.config.suppress_ids_begin = [3]
    spec.validate()
    spec.optimize(quantization)
    spec.save(str(tmp_path))
    (tmp_path / "tokenizer.json").write_text("{}")

    files = find_files(tmp_path)
    assert read_model_config(files) == CONFIG
    found = load(files)
    for name, tensor in weights.items():
        # the step of a quantised row is a fraction of its largest weight
        assert (found[name] - tensor).abs().max() <= error * tensor.abs().max(), name


@pytest.mark.parametrize("write", [write_hugging_face, write_ctranslate2])
def test_a_file_cut_off_anywhere_is_one_clear_error(tmp_path: Path, write: Any) -> None:
    write(tmp_path, make_weights())
    files = find_files(tmp_path)
    data = files.weights[0].read_bytes()
    for length in (0, 1, 7, 30, 200, 5_000, len(data) // 2, len(data) - 1):
        files.weights[0].write_bytes(data[:length])
        with pytest.raises(ModelError) as caught:
            load(files)
        message = str(caught.value)
        assert str(files.weights[0]) in message
        assert "\n" not in message


@pytest.mark.parametrize("seed", range(20))
def test_a_damaged_header_never_raises_anything_else(tmp_path: Path, seed: int) -> None:
    weights = make_weights()
    write_ctranslate2(tmp_path, weights)
    files = find_files(tmp_path)
    generator = torch.Generator().manual_seed(seed)
    data = bytearray(files.weights[0].read_bytes())
    for place in torch.randint(0, 120, (3,), generator=generator).tolist():
        data[place] = int(torch.randint(0, 256, (), generator=generator))
    files.weights[0].write_bytes(data)
    try:
        found = load_weights(files, read_model_config(files))
    except ModelError as error:
        assert "\n" not in str(error)
    else:  # only what is not read was hit: a revision, say
        assert_same(found, weights)


def test_another_kind_of_model_is_named(tmp_path: Path) -> None:
    from tests.support.small_model import serialize

    write_ctranslate2(tmp_path, make_weights())
    files = find_files(tmp_path)
    files.weights[0].write_bytes(serialize({}, {}, specification="TransformerSpec"))
    with pytest.raises(ModelError, match="expected WhisperSpec, got TransformerSpec"):
        load(files)
    files.weights[0].write_bytes(serialize({}, {}, version=7))
    with pytest.raises(ModelError, match="expected version 4 to 6, got 7"):
        load(files)


def test_missing_tensor_is_named(tmp_path: Path) -> None:
    write_hugging_face(tmp_path, make_weights())
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    del tensors["model.decoder.layers.1.fc2.bias"]
    save_file(tensors, path)
    with pytest.raises(ModelError, match=r"no model\.decoder\.layers\.1\.fc2\.bias"):
        load(find_files(tmp_path))


def test_wrong_shape_is_named(tmp_path: Path) -> None:
    write_hugging_face(tmp_path, make_weights())
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    tensors["model.encoder.conv1.weight"] = torch.zeros(128, 128, 3)
    save_file(tensors, path)
    with pytest.raises(ModelError, match=r"encoder\.conv1\.weight of shape \(128, 80, 3\)"):
        load(find_files(tmp_path))


@pytest.mark.model
def test_real_weights_survive_the_other_format(tmp_path: Path, tiny_en: Any) -> None:
    write_hugging_face(tmp_path, tiny_en.weights, tiny_en.config)
    files = find_files(tmp_path)
    config = read_model_config(files)
    assert config == tiny_en.config
    assert_same(load_weights(files, config), tiny_en.weights)
