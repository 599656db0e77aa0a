"""Names to files: folders, packages, the hub; and one clear line when there is nothing."""

from __future__ import annotations

import http.server
import json
import os
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.checkpoint import locate
from engine.checkpoint.locate import (
    ModelError,
    PackagedFile,
    PackagedModel,
    WeightFormat,
    find_files,
    find_packaged,
    resolve_model,
    sha256,
)
from tests.support.small_model import make_weights, write_ctranslate2, write_hugging_face

ROOT = Path(__file__).parents[3]


def test_a_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    write_hugging_face(tmp_path / "hf", make_weights())
    write_ctranslate2(tmp_path / "ct2", make_weights())
    hf = resolve_model(str(tmp_path / "hf"))
    ct2 = resolve_model(str(tmp_path / "ct2"))
    assert (hf.format, ct2.format) == (WeightFormat.SAFETENSORS, WeightFormat.CTRANSLATE2)
    assert hf.generation_config == tmp_path / "hf/generation_config.json"
    assert ct2.weights == (tmp_path / "ct2/model.bin",)
    assert hf.name == str(tmp_path / "hf")


@pytest.mark.parametrize("missing", ["config.json", "tokenizer.json", "model.bin"])
def test_a_missing_file_is_named(tmp_path: Path, missing: str) -> None:
    write_ctranslate2(tmp_path, make_weights())
    (tmp_path / missing).unlink()
    with pytest.raises(ModelError, match=missing):
        resolve_model(str(tmp_path))


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    write_hugging_face(tmp_path, make_weights(), num_shards=2)
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(ModelError, match="model-00002-of-00002.safetensors is missing"):
        find_files(tmp_path)


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"weight_map": 3}'])
def test_a_broken_index_is_named(tmp_path: Path, content: str) -> None:
    write_hugging_face(tmp_path, make_weights(), num_shards=2)
    (tmp_path / "model.safetensors.index.json").write_text(content)
    with pytest.raises(ModelError, match="is not an index"):
        find_files(tmp_path)


@pytest.mark.parametrize("name", ["bse", "/no/such/folder", "a/b/c", "owner/na me"])
def test_an_unknown_name_says_what_there_is(name: str) -> None:
    with pytest.raises(ModelError, match="expected a folder, a hub id .* large-v3-turbo"):
        resolve_model(name)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PackagedModel:
    """Install two packages that hold a model in two parts."""
    write_ctranslate2(tmp_path / "whole", make_weights())
    data = (tmp_path / "whole/model.bin").read_bytes()
    for name in ("model_package_1", "model_package_2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    first, second = tmp_path / "model_package_1", tmp_path / "model_package_2"
    (first / "part1").write_bytes(data[:100_000])
    (second / "part2").write_bytes(data[100_000:])
    for name in ("config.json", "tokenizer.json"):
        (second / name).write_bytes((tmp_path / "whole" / name).read_bytes())
    monkeypatch.syspath_prepend(str(tmp_path))

    def packaged(folder: Path, name: str) -> PackagedFile:
        return PackagedFile(folder.name, name, sha256(folder / name))

    return PackagedModel(
        install="two-packages",
        weights=(packaged(first, "part1"), packaged(second, "part2")),
        config=packaged(second, "config.json"),
        tokenizer=packaged(second, "tokenizer.json"),
    )


def test_a_packaged_model_is_found_without_importing_it(package: PackagedModel) -> None:
    files = find_packaged(package, "mine")
    assert files is not None
    assert files.name == "mine"
    assert [path.name for path in files.weights] == ["part1", "part2"]
    assert "model_package_1" not in sys.modules


def test_a_damaged_packaged_file_is_refused(package: PackagedModel) -> None:
    files = find_packaged(package, "mine")
    assert files is not None
    data = bytearray(files.weights[1].read_bytes())
    data[1000] ^= 1
    files.weights[1].write_bytes(data)
    with pytest.raises(ModelError, match="part2 is damaged .* two-packages"):
        find_packaged(package, "mine")
    files.weights[1].write_bytes(b"")
    with pytest.raises(ModelError, match="damaged"):
        find_packaged(package, "mine")


def test_half_an_installation_is_named(package: PackagedModel) -> None:
    absent = replace(package.weights[0], package="model_package_3")
    with pytest.raises(ModelError, match="installed in part, model_package_3/part1 is missing"):
        find_packaged(replace(package, weights=(absent, package.weights[1])), "mine")


def test_no_installation_is_none(package: PackagedModel) -> None:
    absent = replace(package.config, package="model_package_3")
    model = replace(package, weights=(absent,), config=absent, tokenizer=absent)
    assert find_packaged(model, "mine") is None


def fail_to_download(error: Exception) -> Any:
    def snapshot_download(*args: object, **options: object) -> str:
        raise error

    return snapshot_download


def test_without_a_network_the_reason_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub
    from huggingface_hub.errors import LocalEntryNotFoundError

    error = LocalEntryNotFoundError("An error happened while trying to locate files.\nCheck ...")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail_to_download(error))
    with pytest.raises(ModelError, match="'small' is not on this machine") as caught:
        resolve_model("small")
    assert "openai/whisper-small cannot be downloaded" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_offline_mode_of_the_hub_is_a_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real client, told that there is no network, with an empty cache."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ModelError, match="'owner/model' is not on this machine"):
        resolve_model("owner/model")


class BreakingHub(http.server.BaseHTTPRequestHandler):
    """Lists the files of a repository and then breaks the connection, or does so at once."""

    breaks_at_once = False

    def do_GET(self) -> None:
        self.close_connection = True
        if self.breaks_at_once or "/resolve/" in self.path:
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        if "/tree/" in self.path:
            answer: Any = [{"type": "file", "path": "config.json", "size": 9, "oid": "b" * 40}]
        else:
            answer = {"id": "o/m", "sha": "a" * 40, "siblings": [{"rfilename": "config.json"}]}
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None: ...


@pytest.mark.parametrize("breaks_at_once", [True, False])
def test_a_connection_that_breaks_is_one_line(tmp_path: Path, breaks_at_once: bool) -> None:
    """The real client: what its HTTP library raises is no OSError, and no error of the hub's."""
    hub = type("Hub", (BreakingHub,), {"breaks_at_once": breaks_at_once})
    code = """
from engine.checkpoint.locate import ModelError, resolve_model
try:
    resolve_model("o/m")
except ModelError as error:
    print(error)
"""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), hub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        variables = {
            "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
            "HF_HOME": str(tmp_path),
            "NO_PROXY": "127.0.0.1",
        }
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env=os.environ | variables,
            capture_output=True,
            text=True,
        )
        server.shutdown()
    (line,) = done.stdout.splitlines() or [done.stderr]
    assert line.startswith("model 'o/m' is not on this machine and o/m cannot be downloaded: ")


def test_a_download_asks_for_the_files_that_are_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fnmatch

    import huggingface_hub

    asked: list[Any] = []

    def snapshot_download(repository: str, allow_patterns: list[str]) -> str:
        asked.append((repository, allow_patterns))
        write_hugging_face(tmp_path, make_weights())
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    files = resolve_model("turbo")
    assert files.name == "turbo"
    ((repository, patterns),) = asked
    assert repository == "openai/whisper-large-v3-turbo"

    def is_fetched(name: str) -> bool:
        return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)

    assert all(map(is_fetched, ["model.safetensors", "tokenizer.json", "model.bin"]))
    # the same weights again: other frameworks, and single precision (openai/whisper-large-v3)
    for name in (
        "pytorch_model.bin",
        "flax_model.msgpack",
        "tf_model.h5",
        "model.fp32-00001-of-00002.safetensors",
    ):
        assert not is_fetched(name)


@pytest.mark.model
@pytest.mark.parametrize("name", sorted(locate.MODEL_PACKAGES))
def test_installed_models_are_whole(name: str, load_model: Any) -> None:
    assert resolve_model(name) == load_model(name).files
