"""One definition serves the command line, the environment and the file."""

from __future__ import annotations

import argparse
import dataclasses
from dataclasses import dataclass
from pathlib import Path

import pytest

from engine.config import EngineConfig
from streamer import options
from streamer.config import ServerConfig
from streamer.options import OptionError, option


@dataclass(frozen=True, slots=True)
class Sample:
    size: int = option(1, "how many", "numbers")
    rate: float = option(0.5, "how often", "numbers")
    is_on: bool = option(True, "whether", "switches")
    names: tuple[str, ...] = option(("a",), "who", "texts")
    secret: str = option("", "what nobody may see", "texts", is_secret=True)

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError(f"expected size of at least 0, got {self.size}")


def build(
    words: list[str],
    environment: dict[str, str] | None = None,
    table: dict[str, object] | None = None,
) -> Sample:
    parser = argparse.ArgumentParser()
    options.add_options(parser, Sample, "rest")
    return options.build(Sample, parser.parse_args(words), environment or {}, table or {})


def test_nothing_given_means_the_defaults() -> None:
    assert build([]) == Sample()


def test_the_command_line_counts_before_the_environment_before_the_file() -> None:
    file: dict[str, object] = {"size": 2, "rate": 2.0, "names": ["x", "y"]}
    environment = {"WORDWIRE_SIZE": "3", "WORDWIRE_RATE": "3"}
    built = build(["--size", "4"], environment, file)
    assert (built.size, built.rate, built.names) == (4, 3.0, ("x", "y"))


def test_switches_and_lists_are_read_from_each_place() -> None:
    assert build(["--no-is-on", "--names", "b, c"]) == Sample(is_on=False, names=("b", "c"))
    assert build([], {"WORDWIRE_IS_ON": "false", "WORDWIRE_NAMES": "b,c"}).names == ("b", "c")
    assert build([], {}, {"is_on": False}).is_on is False


@pytest.mark.parametrize(
    ("environment", "table", "message"),
    [
        ({"WORDWIRE_SIZE": "many"}, {}, "WORDWIRE_SIZE: expected a whole number, got 'many'"),
        ({"WORDWIRE_IS_ON": "maybe"}, {}, "expected true or false"),
        ({}, {"size": "3"}, "size: expected a whole number"),
        ({}, {"size": True}, "size: expected a whole number"),
        ({}, {"names": "b"}, "names: expected a list"),
        ({"WORDWIRE_SIZE": "-1"}, {}, "expected size of at least 0, got -1"),
    ],
)
def test_what_cannot_be_used_is_named(
    environment: dict[str, str], table: dict[str, object], message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        build([], environment, table)


def test_a_file_may_group_its_options(tmp_path: Path) -> None:
    path = tmp_path / "wordwire.toml"
    path.write_text('model = "base"\n[limits]\nmax_sessions = 3\n[engine]\nmax_batch = 8\n')
    table = options.read_file(str(path))
    assert table == {"model": "base", "max_sessions": 3, "max_batch": 8}
    options.check_names(table, (ServerConfig, EngineConfig))
    assert options.build(ServerConfig, argparse.Namespace(), {}, table).max_sessions == 3


def test_a_file_with_unknown_or_doubled_names_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "wordwire.toml"
    path.write_text("[a]\nport = 1\n[b]\nport = 2\n")
    with pytest.raises(OptionError, match="port twice"):
        options.read_file(str(path))
    with pytest.raises(OptionError, match="got 'prot'"):
        options.check_names({"prot": 1}, (ServerConfig,))
    path.write_text("port =")
    with pytest.raises(OptionError, match="expected TOML"):
        options.read_file(str(path))
    with pytest.raises(OptionError, match="cannot read"):
        options.read_file(str(tmp_path / "none.toml"))


def test_a_secret_is_not_shown() -> None:
    assert "s3cret" not in repr(build([], {"WORDWIRE_SECRET": "s3cret"}))


def test_every_option_of_the_service_says_what_it_means() -> None:
    for field in dataclasses.fields(ServerConfig):
        assert field.metadata["help"] and field.metadata["group"], field.name


def test_every_option_of_the_engine_says_what_it_means() -> None:
    """In its metadata: comments are gone where Python was installed without its sources."""
    for field in dataclasses.fields(EngineConfig):
        assert field.metadata["help"], field.name


def test_no_option_of_the_service_has_the_name_of_one_of_the_engine() -> None:
    names = [
        field.name
        for config in (ServerConfig, EngineConfig)
        for field in dataclasses.fields(config)
    ]
    assert len(names) == len(set(names))
