"""Errors as data: what crosses the boundary between an engine's process and its owner.

An exception is never pickled: whether it survives that is up to its class, and one that does not
would cost the thread that reads it.
"""

from __future__ import annotations

import enum

import msgspec

from engine.api import EngineBusy, EngineError, InvalidRequest, StreamLost
from engine.checkpoint.locate import ModelError


class FaultKind(enum.Enum):
    """What is raised again on the other side."""

    INVALID_REQUEST = "invalid_request"
    BUSY = "busy"
    STREAM_LOST = "stream_lost"
    ENGINE = "engine"  # another error that a client may read
    MODEL = "model"  # of a load: the model cannot be used
    CONFIG = "config"  # of a load: a setting cannot be used
    BUG = "bug"  # anything else


# the narrowest first
KINDS: tuple[tuple[type[Exception], FaultKind], ...] = (
    (InvalidRequest, FaultKind.INVALID_REQUEST),
    (EngineBusy, FaultKind.BUSY),
    (StreamLost, FaultKind.STREAM_LOST),
    (EngineError, FaultKind.ENGINE),
)
LOAD_KINDS: tuple[tuple[type[Exception], FaultKind], ...] = (
    *KINDS,
    (ModelError, FaultKind.MODEL),
    (ValueError, FaultKind.CONFIG),
)
CLASSES: dict[FaultKind, type[Exception]] = {
    FaultKind.BUG: RuntimeError,
    **{kind: error for error, kind in LOAD_KINDS},
}


class Fault(msgspec.Struct, frozen=True):
    """An error on its way."""

    kind: FaultKind
    message: str

    @property
    def error(self) -> Exception:
        """The exception to raise for it."""
        return CLASSES[self.kind](self.message)


def describe_request_error(error: Exception) -> Fault:
    """Describe why a request failed; of a bug, only its name, since a client may read it."""
    for kind_of, kind in KINDS:
        if isinstance(error, kind_of):
            return Fault(kind, _text(error))
    return Fault(FaultKind.BUG, f"{type(error).__name__} in the engine's process")


def describe_load_error(error: Exception) -> Fault:
    """Describe why an engine could not be made, for its operator."""
    for kind_of, kind in LOAD_KINDS:
        if isinstance(error, kind_of):
            return Fault(kind, _text(error))
    return Fault(FaultKind.BUG, f"{type(error).__name__}: {_text(error)}")


def encodable(text: str) -> str:
    """Replace what UTF-8 cannot hold, such as a file name that is not text."""
    return text.encode("utf-8", "replace").decode()


def _text(error: Exception) -> str:
    try:
        return encodable(str(error))
    except Exception:  # a class whose own text fails
        return type(error).__name__
