"""What an engine's process and its owner say to each other, and how it is framed.

Frames are a length and a pickle. Both ends are this program: the socket is an unnamed pair that no
other process can open.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from engine.api import Hypothesis, ModelInfo, StreamOptions, Window

LENGTH = struct.Struct("<I")
MAX_FRAME_BYTES = 64 * 2**20  # a window of 30 s is 2 MB


@dataclass(frozen=True, slots=True)
class Recipe:
    """How an engine is made: `module.function(argument)`, imported in its own process."""

    module: str
    function: str
    argument: object  # must survive a pickle


@dataclass(frozen=True, slots=True)
class Load:
    """The first message to a process."""

    recipe: Recipe
    log_level: int


@dataclass(frozen=True, slots=True)
class Open:
    """Open a stream."""

    stream: int
    options: StreamOptions


@dataclass(frozen=True, slots=True)
class Decode:
    """Decode a window of an open stream."""

    request: int
    stream: int
    window: Window


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stop a decode; it is not answered any more."""

    request: int


@dataclass(frozen=True, slots=True)
class Close:
    """Close a stream."""

    stream: int


Order = Load | Open | Decode | Cancel | Close


@dataclass(frozen=True, slots=True)
class Loaded:
    """The engine is there."""

    info: ModelInfo


@dataclass(frozen=True, slots=True)
class Failed:
    """The engine could not be made; the process ends."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Opened:
    """The answer to Open; with an error where the stream is not open."""

    stream: int
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class Decoded:
    """The answer to Decode."""

    request: int
    outcome: Hypothesis | Exception


@dataclass(frozen=True, slots=True)
class Logged:
    """A line for the owner's log."""

    level: int
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Counted:
    """The engine's counters, from time to time."""

    counters: dict[str, float]


Report = Loaded | Failed | Opened | Decoded | Logged | Counted
Message = TypeVar("Message")


def pack(message: Order | Report) -> bytes:
    """Write a message as a frame."""
    data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(data)) + data


class Unpacker(Generic[Message]):
    """Cuts received bytes into messages of the kind that the other end sends."""

    def __init__(self) -> None:
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
            message: Message = pickle.loads(memoryview(self._data)[LENGTH.size : end])
            del self._data[:end]
            yield message
