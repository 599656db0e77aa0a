"""Dataclasses from untrusted JSON objects: every value is checked against its annotation.

Knows `str`, `int`, `float`, `bool`, `Literal`, `list`, `X | None` and nested dataclasses, which is
all that wire messages need. What a message means is left to the protocol that calls it.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import types
import typing
from collections.abc import Hashable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")

MAX_QUOTED = 40  # characters of a wrong value that an error repeats


class FieldError(ValueError):
    """A field holds what it must not.

    Attributes:
        field: its name, with the path to it where it is nested: "words[2].start".
    """

    def __init__(self, field: str, expected: str, found: str) -> None:
        super().__init__(f"{field}: expected {expected}, got {found}")
        self.field = field


class RangeError(ValueError):
    """A value of the right type is none that is served.

    Attributes:
        field: its name in the service's own terms; protocols may call it otherwise.
    """

    def __init__(self, field: str, expected: str, found: object) -> None:
        self._expected = f"{expected}, got {found!s:.40}"
        super().__init__(self.describe(field))
        self.field = field

    def describe(self, name: str) -> str:
        """Say what is wrong, by the name that the client knows."""
        return f"expected {name} {self._expected}"


def build(cls: type[T], values: Mapping[str, object], path: str = "") -> tuple[T, list[str]]:
    """Build a dataclass from a JSON object.

    A null stands for the field's default where it has one.

    Returns:
        The dataclass, and the names in `values` that it does not know.

    Raises:
        FieldError: a value of the wrong type, or a field without a default is missing.
    """
    known = _fields(cls)
    arguments: dict[str, Any] = {}
    for name, field in known.items():
        value = values.get(name)
        if value is None and (field.has_default or not field.takes_null):
            if not field.has_default:
                found = "null" if name in values else "nothing"
                raise FieldError(path + name, _describe_type(field.annotation), found)
            continue
        arguments[name] = _check(field.annotation, value, path + name)
    return cls(**arguments), [path + name for name in values if name not in known]


def build_from_strings(cls: type[T], values: Mapping[str, list[str]]) -> tuple[T, list[str]]:
    """Build a dataclass from query parameters: each name with all its values.

    Lists may be repeated or separated by commas; of anything else the last value counts.

    Raises:
        FieldError: a value that does not read as the field's type.
    """
    known = _fields(cls)
    typed: dict[str, object] = {}
    for name, texts in values.items():
        if name in known and texts:
            typed[name] = _from_strings(known[name].annotation, texts)
        else:
            typed[name] = texts
    return build(cls, typed)


def field_names(cls: type[Any]) -> frozenset[str]:
    """Name the fields that `build` takes for a dataclass."""
    return frozenset(_fields(cls))


@dataclasses.dataclass(frozen=True, slots=True)
class _Field:
    annotation: Any
    has_default: bool
    takes_null: bool


def _fields(cls: type[Any]) -> Mapping[str, _Field]:
    return _inspect(typing.cast("Hashable", cls))


@functools.cache
def _inspect(cls: Any) -> Mapping[str, _Field]:
    hints = typing.get_type_hints(cls)
    missing = dataclasses.MISSING
    return {
        field.name: _Field(
            annotation=hints[field.name],
            has_default=field.default is not missing or field.default_factory is not missing,
            takes_null=type(None) in typing.get_args(hints[field.name]),
        )
        for field in dataclasses.fields(cls)
    }


def _check(annotation: Any, value: object, path: str) -> Any:
    origin = typing.get_origin(annotation)
    if origin is types.UnionType or origin is typing.Union:
        if value is None:
            return None
        return _check(_without_none(annotation), value, path)
    if origin is typing.Literal:
        # `1 == True` in Python, so the type has to match too
        if any(value == choice and type(value) is type(choice) for choice in annotation.__args__):
            return value
    elif origin is list:
        if isinstance(value, list):
            (item,) = typing.get_args(annotation)
            return [_check(item, entry, f"{path}[{i}]") for i, entry in enumerate(value)]
    elif dataclasses.is_dataclass(annotation):
        if isinstance(value, dict):
            return build(typing.cast("type[Any]", annotation), value, path + ".")[0]
    elif annotation is float:
        # bool is an int, and JSON writes 2.0 as 2
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and (number := _finite(value)) is not None:
            return number
    elif isinstance(value, annotation) and not (annotation is int and isinstance(value, bool)):
        return value
    raise FieldError(path, _describe_type(annotation), quote(value))


def _finite(value: Any) -> float | None:
    """Return a number as a float; None where it is not finite, or none can hold it."""
    try:
        number = float(value)
    except OverflowError:  # an integer of more than 308 digits
        return None
    return number if math.isfinite(number) else None


def _from_strings(annotation: Any, texts: list[str]) -> object:
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        annotation = _without_none(annotation)
    if typing.get_origin(annotation) is list:
        return [part.strip() for text in texts for part in text.split(",") if part.strip()]
    text = texts[-1]
    try:
        if typing.get_origin(annotation) is typing.Literal:
            return {str(choice): choice for choice in annotation.__args__}[text]
        if annotation is bool:
            return {"true": True, "1": True, "false": False, "0": False}[text.lower()]
        return annotation(text)
    except (ValueError, KeyError):
        return text  # `build` says what was expected


def _without_none(annotation: Any) -> Any:
    return next(arg for arg in typing.get_args(annotation) if arg is not type(None))


def _describe_type(annotation: Any) -> str:
    origin = typing.get_origin(annotation)
    if origin is types.UnionType or origin is typing.Union:
        return _describe_type(_without_none(annotation))
    if origin is typing.Literal:
        return "one of " + ", ".join(json.dumps(choice) for choice in annotation.__args__)
    if origin is list:
        return "a list of " + _describe_type(typing.get_args(annotation)[0]).removeprefix("a ")
    names = {str: "a string", int: "an integer", float: "a finite number", bool: "true or false"}
    return names.get(annotation, "an object")


def quote(value: object) -> str:
    """Show a JSON value in an error, cut short."""
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= MAX_QUOTED else text[:MAX_QUOTED] + "..."
