"""Imports point one way, and the pure modules stay pure."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("engine", "streamer", "clients")
EDGE = {"asyncio", "starlette", "websockets", "uvicorn", "time", "logging", "socket", "threading"}
# samples, messages and `now` go in, windows and events come out
PURE = [
    "streamer/transcription",
    "streamer/vad",
    "streamer/audio/pcm.py",
    "streamer/messages.py",
    "streamer/protocol.py",
    "streamer/protocols/native/journal.py",
    "streamer/schema.py",
    "streamer/wire.py",
    "engine/decoding",
    "clients/resume_buffer.py",
    "clients/subtitles.py",
]
# the folders and the modules beside them, lowest first: each may import those above it in the list
FLOORS = {
    "streamer": (
        "schema",
        "wire",
        "options",
        "config",
        "messages",
        "vad",
        "transcription",
        "protocol",
        "audio",
        "access",
        "operations",
        "session",
        "recording",
        "service",
        "transport",
        "protocols",
        "web",
        "app",
    ),
    "engine": (
        "api",
        "config",
        "checkpoint",
        "model",
        "decoding",
        "batching",
        "cuda",
        "build",
        "local",
        "process",
    ),
}
# OpenAI's realtime address also serves vLLM's clients, and hands them on
ALSO_VLLM = "streamer/protocols/openai/realtime/route.py"
# whoever reads along with a telephone call does so in the messages of /v1/stream
ALSO_NATIVE = "streamer/protocols/twilio/call.py"


def _imports(path: Path) -> Iterator[str]:
    """Yield the full names of all modules that a file imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            # `from streamer import protocol` imports streamer.protocol
            if module in PACKAGES:
                yield from (f"{module}.{alias.name}" for alias in node.names)
            else:
                yield module


def _files(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def _of(package: str, name: str) -> bool:
    return name == package or name.startswith(package + ".")


@pytest.mark.parametrize("path", _files("engine"), ids=str)
def test_the_engine_knows_nothing_of_the_others(path: Path) -> None:
    assert not [n for n in _imports(path) if _of("streamer", n) or _of("clients", n)]


@pytest.mark.parametrize("path", _files("streamer"), ids=str)
def test_the_streamer_knows_of_the_engine_only_its_seam(path: Path) -> None:
    names = list(_imports(path))
    assert not [n for n in names if _of("engine", n) and n != "engine.api"]
    assert not [n for n in names if _of("clients", n)]


@pytest.mark.parametrize("path", _files("clients"), ids=str)
def test_clients_know_of_the_service_only_its_protocol(path: Path) -> None:
    names = list(_imports(path))
    assert not [n for n in names if _of("engine", n)]
    assert not [n for n in names if _of("streamer", n) and n != "streamer.protocol"]


@pytest.mark.parametrize("package", FLOORS)
def test_every_folder_has_its_floor(package: str) -> None:
    found = {path.stem for path in (ROOT / package).glob("*.py")} - {"__init__"}
    found |= {path.parent.name for path in (ROOT / package).glob("*/__init__.py")}
    assert found == set(FLOORS[package])


@pytest.mark.parametrize("path", [*_files("streamer"), *_files("engine")], ids=str)
def test_no_folder_imports_one_above_it(path: Path) -> None:
    package, *rest = path.relative_to(ROOT).with_suffix("").parts
    floors = FLOORS[package]
    if rest == ["__init__"]:
        allowed: tuple[str, ...] = ()
    else:
        allowed = floors[: floors.index(rest[0]) + 1]
    for name in _imports(path):
        if _of(package, name):
            assert name.split(".")[1] in allowed, name


@pytest.mark.parametrize("path", _files("streamer/protocols"), ids=str)
def test_protocols_import_no_other_protocol(path: Path) -> None:
    place = path.relative_to(ROOT)
    names = [name.split(".") for name in _imports(path)]
    folders = {name[2] for name in names if name[:2] == ["streamer", "protocols"]}
    folders = {name for name in folders if (ROOT / "streamer/protocols" / name).is_dir()}
    # the one that clients import lies outside; what all protocols need is in streamer.wire
    if ["streamer", "protocol"] in names:
        folders.add("native")
    also = {ALSO_VLLM: "vllm", ALSO_NATIVE: "native"}.get(place.as_posix())
    assert folders <= {place.parts[2], also}


def test_the_list_of_protocols_names_every_folder() -> None:
    root = ROOT / "streamer/protocols"
    listed = ast.get_docstring(ast.parse((root / "__init__.py").read_text())) or ""
    for package in sorted(root.rglob("__init__.py")):
        folder = package.parent.relative_to(root).as_posix()
        assert folder == "." or f"\n{folder} " in listed, folder


@pytest.mark.parametrize("place", PURE)
def test_pure_modules_do_no_io_and_read_no_clock(place: str) -> None:
    files = _files(place) if (ROOT / place).is_dir() else [ROOT / place]
    assert files, place
    for path in files:
        assert not [n for n in _imports(path) if n.partition(".")[0] in EDGE], path


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("engine.api", ("torch", "tokenizers")),
        ("engine.config", ("torch", "tokenizers")),
        ("engine.process.remote", ("torch", "tokenizers")),
        ("streamer.app", ("torch", "tokenizers", "transformers")),
        ("clients.client", ("torch", "starlette", "soundfile")),
        ("clients.transcribe", ("torch", "starlette", "uvicorn")),
        ("wordwire", ("torch", "numpy", "starlette", "soundfile")),
        ("streamer.transcription.transcriber", ("torch", "starlette")),
        ("streamer.vad.detector", ("torch", "starlette")),
    ],
)
def test_a_module_loads_without_what_it_does_not_need(module: str, absent: tuple[str, ...]) -> None:
    code = f"import sys, {module}; print([n for n in {absent!r} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize("path", _files("tests"), ids=str)
def test_what_tests_share_is_in_no_test_module(path: Path) -> None:
    names = [part for n in _imports(path) if _of("tests", n) for part in n.split(".")]
    assert not [n for n in names if n.startswith("test_") or n == "conftest"]


@pytest.mark.parametrize(
    "path", [*_files("engine"), *_files("streamer"), *_files("clients")], ids=str
)
def test_nothing_that_is_installed_needs_tests_or_benchmarks(path: Path) -> None:
    assert not [n for n in _imports(path) if _of("tests", n) or _of("benchmarks", n)]
