"""What `requirements.lock` installs is enough to import everything, and to be told of a download.

The environment of the tests holds much more. So the interpreter that tries is shown a folder with
links to the files of the locked packages, and nothing else: what is not declared is not there.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

from tests.packages.versions import read_lock

ROOT = Path(__file__).parents[2]


def link_packages(folder: Path) -> None:
    """Link the files of the locked packages, as pip lays them out, into a folder."""
    for name, version in read_lock().items():
        try:
            package = distribution(name)
        except PackageNotFoundError:
            pytest.skip(f"{name} is not installed; this environment is not made of the lock files")
        if package.version.partition("+")[0] != version:
            pytest.skip(f"the lock file has {name} {version}, installed is {package.version}")
        for file in package.files or ():
            if ".." in file.parts or not package.locate_file(file).exists():  # commands; old .pyc
                continue
            link = folder / file
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(package.locate_file(file))


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", "-S", *arguments]  # -S: without this environment's packages
    return subprocess.run(command, capture_output=True, text=True, timeout=150)


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("locked")
    link_packages(folder)
    return folder


def test_the_lock_file_holds_all_that_is_imported(locked: Path) -> None:
    done = run(ROOT / "tests/packages/imports.py", "--path", locked, "--path", ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "'small' is not on this machine" in done.stdout


@pytest.mark.parametrize(("module", "is_seen"), [("soxr", True), ("httpx", False)])
def test_only_what_is_locked_is_seen(locked: Path, module: str, is_seen: bool) -> None:
    """Both are installed here; if the second were seen, the test above would prove nothing."""
    assert importlib.util.find_spec(module) is not None
    done = run("-c", f"import sys; sys.path.append({str(locked)!r}); import {module}")
    assert (done.returncode == 0) is is_seen, done.stderr
