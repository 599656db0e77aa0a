"""What pyproject.toml allows: every dependency is bounded, and the lock file is within."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from tests.packages.versions import ROOT, SOURCES, normalise, read_dependencies, read_lock

LOCKED = {normalise(name): version for name, version in read_lock().items()}


@pytest.mark.parametrize(("name", "allowed"), read_dependencies().items())
def test_the_locked_version_is_allowed(name: str, allowed: str) -> None:
    assert SpecifierSet(allowed).contains(LOCKED[normalise(name)])


def test_every_dependency_has_a_floor_and_a_ceiling() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    needed = [*project["dependencies"]]
    for name in set(extras) - {"dev"}:
        needed += extras[name]
    assert len(needed) > 15
    for dependency in needed:
        assert re.search(r">=[\d.]+,<[\d.]+|==[\d.]+", dependency), dependency


def test_uvicorn_stays_below_a_release_that_nobody_tried() -> None:
    """Its protocol classes are private: any minor release may change those that we derive from."""
    allowed = SpecifierSet(read_dependencies()["uvicorn"])
    major, minor = map(int, LOCKED["uvicorn"].split(".")[:2])
    assert not allowed.contains(f"{major}.{minor + 1}.0")


@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.cuda"])
def test_images_are_built_of_what_the_wheel_is_made_of(name: str) -> None:
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / "deploy" / name).read_text(), re.M)
    assert set(SOURCES) <= {source for sources in copied for source in sources.split()}
    ignored = Path(f"{ROOT}/deploy/{name}.dockerignore").read_text().splitlines()
    for source in (source for sources in copied for source in sources.split()):
        assert any(line.startswith("!") and source.startswith(line[1:]) for line in ignored), source
