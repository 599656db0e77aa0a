"""Every benchmark can be started: its modules import, and its options are described."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in (ROOT / "benchmarks").rglob("*.py")
    if path.name != "__init__.py"
)
QUESTIONS = [name for name in MODULES if name.count(".") == 1]
# in a process of its own: some prepare torch for a GPU when they are imported
IMPORT = """
import importlib, json, sys

def missing(name):
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        return error.name

print(json.dumps({name: missing(name) for name in sys.argv[1:]}))
"""


@pytest.fixture(scope="module")
def missing() -> dict[str, str | None]:
    """The module that each benchmark lacks, or None."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORT, *MODULES], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, str | None] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", MODULES)
def test_a_benchmark_imports(name: str, missing: dict[str, str | None]) -> None:
    lacks = missing[name]
    if lacks is not None and lacks.partition(".")[0] not in {"benchmarks", "engine", "streamer"}:
        pytest.skip(f"{lacks} is not installed")
    assert lacks is None


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_file_at_the_top_states_its_question(name: str) -> None:
    first = (ROOT / name.replace(".", "/")).with_suffix(".py").read_text().partition("\n")[0]
    assert first.startswith('"""') and first.endswith("?")


@pytest.mark.parametrize("name", ["accuracy", "cuda", "latency", "windows"])
def test_a_benchmark_describes_its_options(name: str, missing: dict[str, str | None]) -> None:
    lacks = missing["benchmarks.cuda.__main__" if name == "cuda" else f"benchmarks.{name}"]
    if lacks is not None:
        pytest.skip(f"{lacks} is not installed")
    command = [sys.executable, "-m", f"benchmarks.{name}", "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage:") and "options:" in done.stdout


def test_commands_in_documents_name_modules_that_exist() -> None:
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/**/*.py")]
    for page in pages:
        for name in re.findall(r"python -m (benchmarks[\w.]*\w)", page.read_text()):
            if name == "benchmarks.NAME":
                continue
            path = ROOT / name.replace(".", "/")
            found = path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()
            assert found, f"{page.relative_to(ROOT)}: {name}"
