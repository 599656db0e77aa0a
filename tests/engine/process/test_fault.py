"""Errors cross the boundary as data, whatever their class is like."""

from __future__ import annotations

import pytest

from engine.api import EngineBusy, EngineError, InvalidRequest, StreamLost
from engine.checkpoint.locate import ModelError
from engine.process.fault import describe_load_error, describe_request_error
from engine.process.wire import REPORTS, DecodeFailed, LoadFailed, Unpacker, pack
from tests.support.engines import KeywordError


class MuteError(Exception):
    def __str__(self) -> str:
        raise KeyError("its text fails")


@pytest.mark.parametrize(
    "error",
    [
        EngineBusy("no room"),
        InvalidRequest("expected en, got xx"),
        StreamLost("gone"),
        EngineError("another one"),
    ],
)
def test_an_engines_errors_arrive_as_what_they_are(error: EngineError) -> None:
    (got,) = Unpacker(REPORTS).receive(pack(DecodeFailed(1, describe_request_error(error))))
    assert isinstance(got, DecodeFailed)
    assert type(got.fault.error) is type(error) and str(got.fault.error) == str(error)


@pytest.mark.parametrize("error", [KeyError("x"), ValueError("x"), MuteError()])
def test_a_bug_in_a_request_is_told_by_its_name_alone(error: Exception) -> None:
    raised = describe_request_error(error).error
    assert type(raised) is RuntimeError
    assert str(raised) == f"{type(error).__name__} in the engine's process"


@pytest.mark.parametrize("error", [ModelError("no such model"), ValueError("device: got x")])
def test_what_an_operator_can_mend_arrives_as_what_it_is(error: Exception) -> None:
    raised = describe_load_error(error).error
    assert type(raised) is type(error) and str(raised) == str(error)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (KeywordError(response="404"), "KeywordError: 404"),
        (MuteError(), "MuteError: MuteError"),
        (OSError("no file \udcff"), "OSError: no file ?"),
    ],
)
def test_any_other_error_of_a_load_arrives_with_its_name_and_text(
    error: Exception, text: str
) -> None:
    (got,) = Unpacker(REPORTS).receive(pack(LoadFailed(describe_load_error(error))))
    assert isinstance(got, LoadFailed)
    assert type(got.fault.error) is RuntimeError and str(got.fault.error) == text
