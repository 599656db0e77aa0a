from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import pytest

from streamer import schema


@dataclass(frozen=True)
class Part:
    name: str
    size: float = 1.0


@dataclass(frozen=True)
class Whole:
    count: int
    kind: Literal["a", "b", 3] = "a"
    parts: list[Part] = field(default_factory=list)
    note: str | None = None
    is_good: bool = True


def test_values_of_the_right_types_are_taken() -> None:
    values = {"count": 2, "kind": 3, "parts": [{"name": "x", "size": 2}], "note": "n"}
    whole, ignored = schema.build(Whole, values)
    assert whole == Whole(2, 3, [Part("x", 2.0)], "n") and ignored == []


def test_what_is_missing_or_null_has_its_default() -> None:
    assert schema.build(Whole, {"count": 1, "kind": None, "parts": None})[0] == Whole(1)


@pytest.mark.parametrize("values", [{}, {"count": None}])
def test_a_field_without_default_must_be_there(values: dict[str, object]) -> None:
    with pytest.raises(schema.FieldError, match="count: expected an integer, got n"):
        schema.build(Whole, values)


def test_names_that_are_not_known_are_returned() -> None:
    assert schema.build(Whole, {"count": 1, "x": 1, "y": 2})[1] == ["x", "y"]


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"count": "1"}, "count"),
        ({"count": True}, "count"),
        ({"count": 1.0}, "count"),
        ({"count": 1, "kind": True}, "kind"),
        ({"count": 1, "kind": "3"}, "kind"),
        ({"count": 1, "is_good": 1}, "is_good"),
        ({"count": 1, "parts": {}}, "parts"),
        ({"count": 1, "parts": [{"name": "x"}, {}]}, "parts[1].name"),
        ({"count": 1, "parts": [{"name": "x", "size": float("nan")}]}, "parts[0].size"),
        ({"count": 1, "parts": [{"name": "x", "size": 10**401}]}, "parts[0].size"),
        ({"count": 1, "parts": [3]}, "parts[0]"),
        ({"count": 1, "note": 5}, "note"),
    ],
)
def test_a_wrong_value_is_named_with_its_path(values: dict[str, object], name: str) -> None:
    with pytest.raises(schema.FieldError) as raised:
        schema.build(Whole, values)
    assert raised.value.field == name


def test_strings_are_read_as_the_fields_types() -> None:
    values = {"count": ["1", "2"], "is_good": ["0"], "note": ["x"], "kind": ["3"], "other": ["y"]}
    whole, ignored = schema.build_from_strings(Whole, values)
    assert whole == Whole(2, 3, note="x", is_good=False) and ignored == ["other"]


def test_a_long_value_is_quoted_in_part() -> None:
    assert len(schema.quote("x" * 1000)) < 60
