import pytest

from streamer.protocols.openai.body import parse_object
from streamer.protocols.openai.error import ApiError


def test_an_object_is_read() -> None:
    assert parse_object('{"a": [1, null]}') == {"a": [1, None]}
    assert parse_object(b'{"a": "\xc3\xbc"}') == {"a": "ü"}


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '"x"', "5", '{"a": NaN}', "[" * 100_000, b"\xff{}", "{} {}"]
)
def test_anything_else_is_an_error(text: str | bytes) -> None:
    with pytest.raises(ApiError) as caught:
        parse_object(text)
    assert caught.value.code == "invalid_json"
