"""One definition for the command line, the environment and the configuration file.

A configuration is a frozen dataclass whose fields carry their help as metadata, as those made by
`option` do. From them come the command-line options (`--max-sessions`), the variables
(`WORDWIRE_MAX_SESSIONS`) and the keys of the TOML file (`max_sessions`). What is given in several
places counts in this order.
"""

from __future__ import annotations

import argparse
import dataclasses
import tomllib
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

T = TypeVar("T")

PREFIX = "WORDWIRE_"


class OptionError(ValueError):
    """An option that cannot be used; the message says which and why."""


def option(default: T, meaning: str, group: str, *, is_secret: bool = False) -> T:
    """Declare a field: its default, one line of meaning, and where help shows it.

    A secret stays out of the configuration's repr, and with it out of logs.
    """
    field: T = dataclasses.field(
        default=default, repr=not is_secret, metadata={"help": meaning, "group": group}
    )
    return field


def add_options(parser: argparse.ArgumentParser, config: type[Any], group: str) -> None:
    """Add an option for every field of a configuration.

    Fields whose metadata names no group are shown in `group`.
    Options that are not given are absent from the namespace, so that `build` can tell.
    """
    groups: dict[str, argparse._ArgumentGroup] = {}
    hints = typing.get_type_hints(config)
    for field in dataclasses.fields(config):
        title = field.metadata.get("group", group)
        if title not in groups:
            groups[title] = parser.add_argument_group(title)
        _add_option(groups[title], field, hints[field.name], field.metadata["help"])


def build(
    config: type[T],
    arguments: argparse.Namespace,
    environment: Mapping[str, str],
    table: Mapping[str, object],
) -> T:
    """Build a configuration: the command line before the environment before the file.

    Raises:
        OptionError: a value that is not of its field's type, or that the configuration refuses.
    """
    hints = typing.get_type_hints(config)
    values: dict[str, Any] = {}
    for field in dataclasses.fields(typing.cast("Any", config)):
        name, variable = field.name, PREFIX + field.name.upper()
        if hasattr(arguments, name):
            values[name] = getattr(arguments, name)
        elif variable in environment:
            values[name] = _read(hints[name], environment[variable], variable)
        elif name in table:
            values[name] = _from_table(hints[name], table[name], name)
    try:
        return config(**values)
    except ValueError as error:
        raise OptionError(str(error)) from None


def read_file(path: str) -> dict[str, object]:
    """Read a TOML file of options. Tables only group them: `[limits]` means nothing.

    Raises:
        OptionError: it cannot be read, or a name stands in it twice.
    """
    try:
        with open(path, "rb") as file:
            parsed = tomllib.load(file)
    except OSError as error:
        raise OptionError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise OptionError(f"{path}: expected TOML, got {error}") from None
    flat: dict[str, object] = {}
    for name, value in parsed.items():
        entries = value.items() if isinstance(value, dict) else [(name, value)]
        for option_name, entry in entries:
            if option_name in flat:
                raise OptionError(f"{path}: expected each option once, got {option_name} twice")
            flat[option_name] = entry
    return flat


def check_names(table: Mapping[str, object], configs: Sequence[type[Any]]) -> None:
    """Refuse a configuration file with names that no option has.

    Raises:
        OptionError: names the first of them.
    """
    known = {field.name for config in configs for field in dataclasses.fields(config)}
    for name in table:
        if name not in known:
            raise OptionError(f"expected the name of an option, got {name!r}")


def _add_option(
    group: argparse._ArgumentGroup, field: dataclasses.Field[Any], hint: Any, meaning: str
) -> None:
    flag = "--" + field.name.replace("_", "-")
    kinds = _kinds(hint)
    if kinds == [bool]:
        group.add_argument(
            flag,
            dest=field.name,
            action=argparse.BooleanOptionalAction,
            default=argparse.SUPPRESS,
            help=f"{meaning} (default: {'yes' if field.default else 'no'})",
        )
        return
    default = ",".join(field.default) if isinstance(field.default, tuple) else field.default
    shown = "none" if default in ("", None) else default

    def read(text: str) -> Any:
        try:
            return _read(hint, text, flag)
        except OptionError as error:
            raise argparse.ArgumentTypeError(str(error).partition(": ")[2]) from None

    group.add_argument(
        flag,
        dest=field.name,
        type=read,
        metavar="A,B" if typing.get_origin(kinds[0]) is tuple else _METAVARS.get(kinds[0], "TEXT"),
        default=argparse.SUPPRESS,
        help=f"{meaning} (default: {shown})".replace("%", "%%"),
    )


_METAVARS = {int: "N", float: "X"}


def _kinds(hint: Any) -> list[Any]:
    """List the types of a field without None, numbers before text."""
    if typing.get_origin(hint) not in (types.UnionType, typing.Union):
        return [hint]
    kinds = [kind for kind in typing.get_args(hint) if kind is not type(None)]
    return sorted(kinds, key=lambda kind: kind is str)


def _read(hint: Any, text: str, name: str) -> Any:
    kinds = _kinds(hint)
    if typing.get_origin(kinds[0]) is tuple:
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if kinds == [bool]:
        if text.lower() in ("1", "true", "yes", "on"):
            return True
        if text.lower() in ("0", "false", "no", "off", ""):
            return False
        raise OptionError(f"{name}: expected true or false, got {text!r}")
    for kind in kinds:
        try:
            return kind(text)
        except ValueError:
            continue
    raise OptionError(f"{name}: expected {_describe(kinds)}, got {text!r}")


def _from_table(hint: Any, value: object, name: str) -> Any:
    kinds = _kinds(hint)
    if typing.get_origin(kinds[0]) is tuple:
        if isinstance(value, list) and all(isinstance(entry, str) for entry in value):
            return tuple(value)
        raise OptionError(f"{name}: expected a list of strings, got {value!r}")
    if type(value) in kinds:
        return value
    if float in kinds and type(value) is int:
        return float(value)
    raise OptionError(f"{name}: expected {_describe(kinds)}, got {value!r}")


def _describe(kinds: list[Any]) -> str:
    names = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
    return " or ".join(names[kind] for kind in kinds)
