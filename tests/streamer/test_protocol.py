"""The protocol module, and that docs/protocol.md says what it does."""

from __future__ import annotations

import dataclasses
import json
import re
import types
import typing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import engine.api
from streamer import protocol
from streamer.audio import pcm
from streamer.protocol import CLIENT_TYPES, SERVER_TYPES
from streamer.protocols.native import audio_input as input
from streamer.transcription import events, settings
from streamer.wire import ClientFault

DOCUMENT = (Path(__file__).parents[2] / "docs/protocol.md").read_text()
ALL_TYPES: dict[str, type[Any]] = {**CLIENT_TYPES, **SERVER_TYPES}

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)


# --- the document ---------------------------------------------------------------------------------


def _documented(name: str) -> dict[str, tuple[str, str]]:
    """Read a message's table: type and default of each field."""
    section = DOCUMENT.split(f"### `{name}`\n")[1].split("\n#")[0]
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \|", section, re.MULTILINE)
    return {field: (kind, default.strip("`")) for field, kind, default in rows}


def _kind(hint: Any) -> str:
    if typing.get_origin(hint) is types.UnionType:
        (inner,) = [arg for arg in typing.get_args(hint) if arg is not type(None)]
        return f"{_kind(inner)} or null"
    if typing.get_origin(hint) is list:
        return f"list of {_kind(typing.get_args(hint)[0])}s"
    if typing.get_origin(hint) is typing.Literal:
        return "string"
    names = {str: "string", int: "integer", float: "number", bool: "boolean"}
    return names.get(hint, "object")


@pytest.mark.parametrize("name", ALL_TYPES)
def test_the_document_has_every_field_with_type_and_default(name: str) -> None:
    cls = ALL_TYPES[name]
    hints = typing.get_type_hints(cls)
    expected = {}
    for field in dataclasses.fields(cls):
        default = "required"
        if field.default is not dataclasses.MISSING:
            default = json.dumps(field.default)
        elif field.default_factory is not dataclasses.MISSING:
            default = json.dumps(field.default_factory())
        expected[field.name] = (_kind(hints[field.name]), default)
    assert _documented(name) == expected


def test_the_document_has_no_message_that_the_module_lacks() -> None:
    assert set(re.findall(r"^### `(\w+)`", DOCUMENT, re.MULTILINE)) == set(ALL_TYPES)


def test_the_document_has_every_error_code() -> None:
    table = DOCUMENT.split("## Errors")[1].split("\n## ")[0]
    documented = set()
    for cell in re.findall(r"^\| (`[^|]+`) \|", table, re.MULTILINE):
        documented |= set(re.findall(r"`(\w+)`", cell))
    root = Path(__file__).parents[2] / "streamer"
    used: set[str] = set()
    neutral = ("protocol.py", "wire.py", "transport/edge.py", "transport/connection.py")
    for path in (*(root / name for name in neutral), *(root / "protocols/native").glob("*.py")):
        text = path.read_text()
        for pattern in (
            r'(?:ClientFault|Overdue)\(\s*"(\w+)"',
            r'Fault\([\w.]+, "(\w+)"',
            r'code = "(\w+)"',
            r'code = "\w+" if .* else "(\w+)"',
        ):
            used |= set(re.findall(pattern, text))
    assert used == documented


def test_the_example_session_is_valid() -> None:
    for text in re.findall(r'\{"type":[^}]*\}', DOCUMENT.split("## Rules")[0]):
        name = json.loads(text)["type"]
        assert name in ALL_TYPES


# --- what the client says -------------------------------------------------------------------------


def test_every_field_may_be_left_out_or_null() -> None:
    for name, cls in CLIENT_TYPES.items():
        required = [f.name for f in dataclasses.fields(cls) if f.default is f.default_factory]
        plain = protocol.parse_client(json.dumps({"type": name} | dict.fromkeys(required, "x")))
        for field in dataclasses.fields(cls):
            if field.name not in required:
                record = {"type": name, field.name: None} | dict.fromkeys(required, "x")
                assert protocol.parse_client(json.dumps(record)) == plain


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("sample_rate", "16000", "an integer"),
        ("sample_rate", 16000.5, "an integer"),
        ("channels", True, "an integer"),
        ("words", 1, "true or false"),
        ("language", [], "a string"),
        ("hotwords", "one", "a list of string"),
        ("hotwords", [1], "a string"),
        ("max_segment_s", "30", "a finite number"),
        ("encoding", "mp3", '"pcm_s16le"'),
        ("delay", 3, '"minimal"'),
        ("prompt", {"a": 1}, "a string"),
    ],
)
def test_wrong_types_name_the_field_what_was_expected_and_found(
    field: str, value: object, expected: str
) -> None:
    with pytest.raises(ClientFault) as raised:
        protocol.parse_client(json.dumps({"type": "start", field: value}))
    error = raised.value
    assert error.code == "invalid_field" and (error.field or "").startswith(field)
    assert expected in error.message and "got" in error.message and not error.is_fatal


def test_numbers_may_be_written_without_a_point() -> None:
    message = protocol.parse_client('{"type":"start","max_segment_s":20}').message
    assert message == protocol.Start(max_segment_s=20.0)


def test_unknown_fields_are_ignored_and_named() -> None:
    parsed = protocol.parse_client('{"type":"end","why":1,"when":2}')
    assert parsed.message == protocol.End() and parsed.ignored == ("why", "when")


@given(value=JSON)
def test_any_json_is_a_message_or_a_protocol_error(value: object) -> None:
    for record in (value, {"type": "start", "language": value}, {"type": value}):
        try:
            protocol.parse_client(json.dumps(record))
        except ClientFault as error:
            assert error.message and len(error.message) < 400


@given(text=st.text(max_size=200))
def test_any_text_is_a_protocol_error(text: str) -> None:
    with pytest.raises(ClientFault):
        protocol.parse_client("x" + text)


def test_query_parameters_read_like_a_start() -> None:
    query = {
        "sample_rate": ["8000"],
        "words": ["true"],
        "hotwords": ["a,b", "c"],
        "vad_threshold": ["0.3"],
        "language": ["de"],
        "utm": ["x"],
    }
    parsed = protocol.parse_query(query)
    assert parsed.message == protocol.Start(
        sample_rate=8000, words=True, hotwords=["a", "b", "c"], vad_threshold=0.3, language="de"
    )
    assert parsed.ignored == ("utm",)
    assert protocol.has_start(query) and not protocol.has_start({"utm": ["x"]})


@pytest.mark.parametrize("query", [{"words": ["maybe"]}, {"channels": ["two"]}, {"delay": ["no"]}])
def test_wrong_query_parameters_are_fatal(query: dict[str, list[str]]) -> None:
    with pytest.raises(ClientFault) as raised:
        protocol.parse_query(query)
    assert raised.value.is_fatal and raised.value.field == next(iter(query))


# --- both ways ------------------------------------------------------------------------------------


def _messages(cls: type[Any]) -> st.SearchStrategy[Any]:
    return st.from_type(cls)


@given(st.one_of(*map(_messages, SERVER_TYPES.values())))
def test_a_server_message_survives_the_wire(message: Any) -> None:
    if any(isinstance(v, float) and v - v != 0 for v in dataclasses.astuple(message)):
        return  # no time is infinite or NaN
    if isinstance(message, protocol.Final) and message.words:
        message = dataclasses.replace(message, words=[protocol.Word(" a", 0.0, 1.0, 0.5)])
    assert protocol.parse_server(protocol.encode(message)) == message


@given(st.one_of(*map(_messages, CLIENT_TYPES.values())))
def test_a_client_message_survives_the_wire(message: Any) -> None:
    if any(isinstance(v, float) and v - v != 0 for v in dataclasses.astuple(message)):
        return
    assert protocol.parse_client(protocol.encode(message)).message == message
    if isinstance(message, protocol.Start):
        assert protocol.parse_client(protocol.encode_start(message)).message == message


def test_a_message_of_a_later_version_is_skipped() -> None:
    assert protocol.parse_server('{"type":"applause","seq":3}') is None


def test_encoding_names_match_those_of_the_decoder() -> None:
    assert set(typing.get_args(protocol.Encoding)) == {*pcm.ENCODINGS, input.CONTAINER}


def test_defaults_are_those_of_the_session() -> None:
    start, plain = protocol.Start(), settings.SessionSettings()
    for name in ("silence_ms", "pre_roll_ms", "max_segment_s", "vad_threshold", "partials"):
        assert getattr(start, name) == getattr(plain, name)
    assert start.delay == plain.delay.value and start.endpointing == plain.endpointing.value


# --- samples to seconds ---------------------------------------------------------------------------

WORD = engine.api.Word(" a", 16_008, 24_000, 0.98765)


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (
            events.SpeechStarted(1, 2, 16_000, 800),
            protocol.SpeechStarted(1, 2, 1.0, 0.05),
        ),
        (events.SpeechEnded(0, 2, 16_001, 0), protocol.SpeechEnded(0, 2, 1.0, 0.0)),
        (
            events.Partial(0, 0, "a", " b", 8_000, 24_000, "en", 1_600),
            protocol.Partial(0, 0, "a", " b", 0.5, 1.5, "en", 0.1),
        ),
    ],
)
def test_events_become_messages_in_seconds(
    event: events.Event, expected: protocol.ServerMessage
) -> None:
    assert protocol.from_event(event, with_words=False) == expected


def test_a_final_carries_its_words_where_asked_for() -> None:
    event = events.Final(
        0, 3, "a", 16_000, 32_000, "de", 0.9, (WORD,), -0.1, 0.0, False, "no_speech", 0
    )
    plain = protocol.from_event(event, with_words=False)
    assert plain == protocol.Final(0, 3, "a", 1.0, 2.0, "de", False, 0.0, None, "no_speech")
    worded = protocol.from_event(event, with_words=True)
    assert isinstance(worded, protocol.Final)
    assert worded.words == [protocol.Word(" a", 1.0, 1.5, 0.988)]
