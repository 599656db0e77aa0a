"""Read CTranslate2's `model.bin` without CTranslate2: names, shapes, bytes.

What the names mean is for `weights`. The format follows ctranslate2 `ModelSpec._serialize`
(python/ctranslate2/specs/model_spec.py): little endian; a string is its length in 16 bits, then
that many bytes with a closing zero; version, name and revision of the specification, number of
variables; of each its name, rank, dimensions, type, number of bytes, bytes; then aliases.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from engine.checkpoint.locate import ModelError

if TYPE_CHECKING:
    import torch

OLDEST_VERSION, NEWEST_VERSION = 4, 6  # version 4 brought the type of each variable
SPECIFICATION = "WhisperSpec"
MAX_RANK = 8  # more than any Whisper variable; a wrong file shows itself early

# ctranslate2 include/ctranslate2/types.h: DataType; numpy lacks bfloat16, so it is read as bits
NUMPY_TYPES = {0: "<f4", 1: "<i1", 2: "<i2", 3: "<i4", 4: "<f2", 5: "<i2"}
BFLOAT16 = 5


@dataclass(frozen=True, slots=True)
class Variable:
    """Where a variable lies."""

    shape: tuple[int, ...]
    type: int  # a key of NUMPY_TYPES
    offset: int  # of its first byte, in all parts joined
    num_bytes: int


class Parts:
    """Files read as if they were one, without joining them. Each is mapped, not loaded."""

    def __init__(self, mappings: Sequence[mmap.mmap]) -> None:
        self._mappings = mappings
        self.num_bytes = sum(len(mapping) for mapping in mappings)

    def read(self, offset: int, num_bytes: int) -> bytes:
        """Copy bytes out, across the seams of the parts.

        Raises:
            EOFError: the parts end before.
        """
        if offset + num_bytes > self.num_bytes:
            raise EOFError
        pieces = []
        for mapping in self._mappings:
            if offset < len(mapping) and num_bytes > 0:
                piece = mapping[offset : offset + num_bytes]
                pieces.append(piece)
                num_bytes -= len(piece)
                offset = 0
            else:
                offset -= len(mapping)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class Checkpoint:
    """The variables of an open `model.bin`."""

    def __init__(self, parts: Parts, variables: dict[str, Variable]) -> None:
        self._parts = parts
        self.variables = variables  # aliases have entries of their own

    def read(self, name: str) -> torch.Tensor:
        """Copy a variable into a tensor of its stored type; KeyError where there is none."""
        variable = self.variables[name]
        data = bytearray(self._parts.read(variable.offset, variable.num_bytes))
        array = np.frombuffer(data, dtype=NUMPY_TYPES[variable.type])
        # here, so that a service whose engine is another process does without torch
        import torch

        tensor = torch.from_numpy(array.reshape(variable.shape))
        return tensor.view(torch.bfloat16) if variable.type == BFLOAT16 else tensor

    def read_scalar(self, name: str) -> int | None:
        """Return a stored number, or None if the file has none of that name."""
        if name not in self.variables:
            return None
        return int(self.read(name).item())


@contextmanager
def open_checkpoint(paths: Sequence[Path]) -> Iterator[Checkpoint]:
    """Open a `model.bin`, or its consecutive parts, and read where everything lies.

    Raises:
        ModelError: a file is missing, cut off, or not a CTranslate2 Whisper model.
    """
    with ExitStack() as stack:
        mappings = []
        for path in paths:
            try:
                file = stack.enter_context(path.open("rb"))
                mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except (OSError, ValueError) as error:  # ValueError: an empty file cannot be mapped
                raise ModelError(f"{path} cannot be read: {error}") from None
            mappings.append(stack.enter_context(mapping))
        parts = Parts(mappings)
        try:
            variables = read_index(parts)
        except EOFError:
            raise ModelError(f"{paths[-1]} is cut off: its end is missing") from None
        except ValueError as error:
            raise ModelError(f"{paths[0]} is not a CTranslate2 Whisper model: {error}") from None
        yield Checkpoint(parts, variables)


def read_index(parts: Parts) -> dict[str, Variable]:
    """Walk over the variables; EOFError if the parts end early, ValueError for another format."""
    offset = 0

    def number(code: str) -> int:
        nonlocal offset
        size = struct.calcsize(code)
        (value,) = struct.unpack(f"<{code}", parts.read(offset, size))
        offset += size
        return int(value)

    def text() -> str:
        nonlocal offset
        length = number("H")
        data = parts.read(offset, length)
        offset += length
        return data.rstrip(b"\0").decode()

    version = number("I")
    if not OLDEST_VERSION <= version <= NEWEST_VERSION:
        raise ValueError(f"expected version {OLDEST_VERSION} to {NEWEST_VERSION}, got {version}")
    specification = text()
    if specification != SPECIFICATION:
        raise ValueError(f"expected {SPECIFICATION}, got {specification}")
    number("I")  # the revision changes names that we do not read
    variables: dict[str, Variable] = {}
    for _ in range(number("I")):
        name = text()
        rank = number("B")
        if rank > MAX_RANK:
            raise ValueError(f"{name} has {rank} dimensions")
        shape = tuple(number("I") for _ in range(rank))
        type, num_bytes = number("B"), number("I")
        if type not in NUMPY_TYPES:
            raise ValueError(f"{name} has the unknown type {type}")
        if num_bytes != np.dtype(NUMPY_TYPES[type]).itemsize * int(np.prod(shape, dtype=np.int64)):
            raise ValueError(f"{name} of shape {shape} has {num_bytes} bytes")
        if offset + num_bytes > parts.num_bytes:
            raise EOFError
        variables[name] = Variable(shape, type, offset, num_bytes)
        offset += num_bytes
    for _ in range(number("I")):
        alias, name = text(), text()
        if name not in variables:
            raise ValueError(f"{alias} stands for {name}, which is missing")
        variables[alias] = variables[name]
    return variables
