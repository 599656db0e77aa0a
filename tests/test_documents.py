"""README and docs/: links lead somewhere, and the manual stays short."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MAX_MANUAL_WORDS = 1_200  # one sitting; measurements belong in docs/notes/


def _anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        found = page.parent / path if path else page
        assert found.exists(), target
        assert not anchor or anchor in _anchors(found), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_and_module_that_a_page_runs_exists(page: Path) -> None:
    for module in re.findall(r"python -m (benchmarks[\w.]*\w)", page.read_text()):
        path = ROOT / module.replace(".", "/")
        assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file(), module


@pytest.mark.parametrize("name", ["architecture", "streaming", "engine", "performance"])
def test_the_manual_is_read_in_one_sitting(name: str) -> None:
    assert len((ROOT / f"docs/{name}.md").read_text().split()) <= MAX_MANUAL_WORDS


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs/index.md").read_text()
    for page in PAGES:
        if page.parent.name == "docs" and page.name != "index.md":
            assert f"({page.name})" in index, page.name
        elif page.parent.name == "notes":
            assert f"(notes/{page.name})" in index, page.name


def test_the_map_names_every_folder() -> None:
    architecture = (ROOT / "docs/architecture.md").read_text()
    for package in ("streamer", "engine"):
        docstring = (ROOT / package / "__init__.py").read_text()
        folders = {path.parent.name for path in (ROOT / package).glob("*/__init__.py")}
        for name in folders:
            assert re.search(rf"^{name} ", docstring, re.MULTILINE), f"{package}/{name}"
            assert f"{name}/" in architecture, f"{package}/{name}"
