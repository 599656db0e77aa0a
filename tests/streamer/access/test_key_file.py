"""Keys are read again when their file changes, and a broken file changes nothing."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from streamer.access.key_file import KeySource
from streamer.access.keys import KeyFileError, digest_of
from streamer.config import ServerConfig

ONE, TWO = "the-first-key-of-all", "the-second-key-of-all"


def config(path: Path | str = "", *keys: str, most: int = 0) -> ServerConfig:
    return ServerConfig(api_key_file=str(path), api_keys=keys, key_max_sessions=most)


def test_without_keys_none_is_asked_for() -> None:
    assert not KeySource(config()).access.is_required


def test_keys_of_the_environment_and_the_file_count_together(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(f'[one]\nsha256 = "{digest_of(ONE).hex()}"\n')
    access = KeySource(config(path, TWO, most=3)).access
    first, second = access.ring.find(ONE), access.ring.find(TWO)
    assert first is not None and first.name == "one" and first.limits.max_sessions == 3
    assert second is not None and second.name.startswith("key-")


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(f'[one]\nkey = "{ONE}"\n')
    source = KeySource(config(path))
    source.reload_if_changed()
    assert source.access.ring.find(ONE) is not None
    replacement = tmp_path / "new"
    replacement.write_text(f'[two]\nkey = "{TWO}"\n')
    os.replace(replacement, path)  # as editors and orchestrators do
    source.reload_if_changed()
    assert source.access.ring.find(ONE) is None and source.access.ring.find(TWO) is not None


@pytest.mark.parametrize("text", ["[one", "[one]\nkey = 'short'", None])
def test_a_broken_or_missing_file_leaves_the_keys_in_force(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str | None
) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(f'[one]\nkey = "{ONE}"\n')
    source = KeySource(config(path))
    if text is None:
        path.unlink()
    else:
        path.write_text(text)
    with caplog.at_level(logging.ERROR):
        source.reload_if_changed()
        source.reload_if_changed()
    assert source.access.ring.find(ONE) is not None
    # said once, not at every look
    assert len(caplog.records) == 1 and "stay as they are" in caplog.records[0].getMessage()


def test_an_empty_file_lets_nobody_in(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    path.write_text("")
    access = KeySource(config(path)).access
    assert access.is_required and access.identify([ONE], 0.0) is None


def test_a_start_with_a_file_that_cannot_be_read_fails(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match="cannot read"):
        KeySource(config(tmp_path / "none.toml"))
    (tmp_path / "bad.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(KeyFileError, match="not UTF-8"):
        KeySource(config(tmp_path / "bad.toml"))
