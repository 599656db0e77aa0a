"""What an engine's process and its owner say to each other, and how it is framed.

A frame is a length and a typed message in MessagePack. Audio crosses as its raw samples, errors as
data; nothing is pickled, so a frame can be wrong but cannot run code.
"""

from __future__ import annotations

import importlib
import struct
import typing
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np

from engine.api import Engine, Hypothesis, InvalidRequest, ModelInfo, StreamOptions, Window
from engine.process.fault import Fault

LENGTH = struct.Struct("<I")
MAX_FRAME_BYTES = 64 * 2**20  # a window of 30 s is 2 MB


class Recipe(msgspec.Struct, frozen=True):
    """How an engine is made: `module.function(argument)`, imported in its own process."""

    module: str
    function: str
    argument: Any  # plain data or a dataclass of it, of the type that the function declares


class Load(msgspec.Struct, frozen=True, tag=True):
    """The first message to a process."""

    recipe: Recipe
    log_level: int


class Open(msgspec.Struct, frozen=True, tag=True):
    """Open a stream."""

    stream: int
    options: StreamOptions


class Decode(msgspec.Struct, frozen=True, tag=True):
    """Decode a window of an open stream."""

    request: int
    stream: int
    window: Window


class Cancel(msgspec.Struct, frozen=True, tag=True):
    """Stop a decode; it is not answered any more."""

    request: int


class Close(msgspec.Struct, frozen=True, tag=True):
    """Close a stream."""

    stream: int


Order = Load | Open | Decode | Cancel | Close


class Loaded(msgspec.Struct, frozen=True, tag=True):
    """The engine is there."""

    info: ModelInfo


class LoadFailed(msgspec.Struct, frozen=True, tag=True):
    """The engine could not be made; the process ends."""

    fault: Fault


class Opened(msgspec.Struct, frozen=True, tag=True):
    """The answer to Open; with a fault where the stream is not open."""

    stream: int
    fault: Fault | None = None


class Decoded(msgspec.Struct, frozen=True, tag=True):
    """The answer to Decode."""

    request: int
    hypothesis: Hypothesis


class DecodeFailed(msgspec.Struct, frozen=True, tag=True):
    """The answer to Decode where there is no hypothesis."""

    request: int
    fault: Fault


class Logged(msgspec.Struct, frozen=True, tag=True):
    """A line for the owner's log."""

    level: int
    name: str
    text: str


class Counted(msgspec.Struct, frozen=True, tag=True):
    """The engine's counters, from time to time."""

    counters: dict[str, float]


Report = Loaded | LoadFailed | Opened | Decoded | DecodeFailed | Logged | Counted
Message = TypeVar("Message", Order, Report)


def make_engine(recipe: Recipe) -> Engine:
    """Make the engine that a recipe names; blocks for as long as that takes.

    Raises:
        ValueError: the argument is not what the function declares.
        Exception: what the function raises.
    """
    function = getattr(importlib.import_module(recipe.module), recipe.function)
    hints = typing.get_type_hints(function)
    declared = next((hint for name, hint in hints.items() if name != "return"), Any)
    try:
        argument = msgspec.convert(recipe.argument, declared)
    except msgspec.MsgspecError as error:
        raise ValueError(f"{recipe.function}: {error}") from error
    engine: Engine = function(argument)
    return engine


def pack(message: Order | Report) -> bytes:
    """Write a message as a frame.

    Raises:
        InvalidRequest: its audio or its text cannot be carried.
    """
    try:
        data = msgspec.msgpack.encode(message, enc_hook=_to_plain)
    except UnicodeEncodeError as error:
        raise InvalidRequest("expected Unicode text, got half of a surrogate pair") from error
    return LENGTH.pack(len(data)) + data


class Unpacker(Generic[Message]):
    """Cuts received bytes into messages of the kind that the other end sends."""

    def __init__(self, decoder: msgspec.msgpack.Decoder[Message]) -> None:
        self._decoder: msgspec.msgpack.Decoder[Message] = decoder
        self._data = bytearray()  # of a message that is not whole yet

    def receive(self, data: bytes) -> Iterator[Message]:
        """Take bytes; yields the messages that are whole.

        Raises:
            ValueError: the other end sends something else.
        """
        self._data += data
        while len(self._data) >= LENGTH.size:
            (length,) = LENGTH.unpack_from(self._data)
            if length > MAX_FRAME_BYTES:
                raise ValueError(f"expected at most {MAX_FRAME_BYTES} bytes, got {length}")
            end = LENGTH.size + length
            if len(self._data) < end:
                return
            with memoryview(self._data) as view, view[LENGTH.size : end] as body:
                try:
                    message = self._decoder.decode(body)
                except msgspec.MsgspecError as error:  # in older versions no ValueError
                    raise ValueError(str(error)) from error
            del self._data[:end]
            yield message


def _to_plain(value: object) -> object:
    """Turn what MessagePack does not know into what it does."""
    if isinstance(value, np.ndarray):
        if value.dtype != np.float32 or value.ndim != 1:
            found = f"{value.dtype} {value.shape}"
            raise InvalidRequest(f"expected audio of shape (T,) float32, got {found}")
        return np.ascontiguousarray(value).data.cast("B") if len(value) else b""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"expected plain data, got {type(value).__name__}")


def _from_plain(kind: type, value: object) -> object:
    """Turn that back."""
    if typing.get_origin(kind) is np.ndarray and isinstance(value, bytes):
        return np.frombuffer(value, np.float32)
    raise ValueError(f"expected {kind}, got {type(value).__name__}")


ORDERS: msgspec.msgpack.Decoder[Order] = msgspec.msgpack.Decoder(Order, dec_hook=_from_plain)
REPORTS: msgspec.msgpack.Decoder[Report] = msgspec.msgpack.Decoder(Report, dec_hook=_from_plain)
