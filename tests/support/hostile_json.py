"""JSON made from the schemas of the messages: right in one field, hostile in the next."""

from __future__ import annotations

import copy
import dataclasses
import json
import types
import typing
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st


def nested(depth: int, kind: str) -> Any:
    """Make lists or objects that many levels deep."""
    value: Any = 1
    for _ in range(depth):
        value = [value] if kind == "list" else {"a": value}
    return value


HOSTILE: list[Any] = [
    10**401,  # no float holds it
    -(10**401),
    2**64,
    7,
    -1,
    1e308,
    float("inf"),
    float("nan"),
    "\ud83d",
    "\\ud83d\ude00",  # an escaped backslash, letters, and half of a pair
    "\ude00\ud83d",
    "\0",
    "9" * 5000,
    "",
    True,
    None,
    [],
    {},
    [1],
    [None],
    ["\udfff"],
    {"input": [1]},
    {"\ud800": 1},
    *(nested(depth, kind) for depth in (5, 63, 70) for kind in ("list", "object")),
]
# a copy each time: what is put into a message may be spoiled in turn
hostile = (
    st.sampled_from(HOSTILE).map(copy.deepcopy) | st.integers() | st.floats() | st.text(max_size=5)
)


def values_of(annotation: Any) -> st.SearchStrategy[Any]:
    """Make values that fit an annotation of a message's field."""
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is types.UnionType or origin is typing.Union:
        return st.one_of([values_of(part) for part in parts])
    if origin is typing.Literal:
        return st.sampled_from(parts)
    if origin is list:
        return st.lists(values_of(parts[0]), max_size=3)
    if dataclasses.is_dataclass(annotation):
        return objects(typing.cast("type[Any]", annotation))
    if annotation is str:
        return st.text(max_size=8) | st.sampled_from(["en", "auto", "xx", "base", "whisper-1"])
    if annotation is int:
        return st.sampled_from([0, 1, 2, 8000, 16_000, 24_000, -1])
    if annotation is float:
        return st.sampled_from([0, 0.5, 1.0, 30.0, -1.0])
    if annotation is bool:
        return st.booleans()
    return st.none()


def objects(cls: type[Any], **always: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Make objects of a dataclass's fields, any of them left out."""
    hints = typing.get_type_hints(cls)
    fields = {field.name: values_of(hints[field.name]) for field in dataclasses.fields(cls)}
    fixed = {name: st.just(value) for name, value in always.items()}
    return st.fixed_dictionaries(fixed, optional=fields)


@st.composite
def spoiled(draw: st.DrawFn, good: st.SearchStrategy[Any]) -> str:
    """Write a good value as JSON, one or two places of it dropped, added or hostile."""
    value = copy.deepcopy(draw(good))
    for _ in range(draw(st.sampled_from([0, 1, 1, 2]))):
        places = _places(value)
        if not places:
            break
        # by number: each place shows all that holds it, and hypothesis writes out what it samples
        holder, name = places[draw(st.integers(0, len(places) - 1))]
        match draw(st.sampled_from(["replace", "replace", "replace", "drop", "add"])):
            case "replace":
                holder[name] = draw(hostile)
            case "drop":
                del holder[name]
            case "add" if isinstance(holder, dict):
                other = draw(st.sampled_from(["unknown", "\ud800", "audio", "type"]))
                holder[other] = draw(hostile)
    return json.dumps(value)


def everywhere(good: Any) -> Iterator[str]:
    """Write a good value as JSON with every one of its places hostile in turn, in every way."""
    for number in range(len(_places(good))):
        for wrong in HOSTILE:
            value = copy.deepcopy(good)
            holder, name = _places(value)[number]
            holder[name] = wrong
            yield json.dumps(value)


def _places(value: Any) -> list[tuple[Any, Any]]:
    """List every place in a value: what holds it, and its name there."""
    entries = value.items() if isinstance(value, dict) else enumerate(value)
    places = [(value, name) for name, _ in entries]
    inner = [value[name] for _, name in places if isinstance(value[name], dict | list)]
    return places + [place for each in inner for place in _places(each)]
