"""What a step on the device leaves for the host: a moment to wait for, and numbers to read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]

RESULT_FIELDS = 3  # of a token: what follows it, its log-probability, no-speech probability


class Done:
    """A moment in a stream that the host can wait for; on a CPU it has always passed."""

    def __init__(self, stream: torch.cuda.Stream | None) -> None:
        self._event = None if stream is None else torch.cuda.Event()  # type: ignore[no-untyped-call]
        if self._event is not None:
            self._event.record(stream)

    def is_over(self) -> bool:
        return self._event is None or self._event.query()  # type: ignore[no-untyped-call]

    def wait(self) -> None:
        if self._event is not None:
            self._event.synchronize()

    def hold(self, stream: torch.cuda.Stream | None) -> None:
        """Make a stream wait, and not the host."""
        if self._event is not None and stream is not None:
            stream.wait_event(self._event)


@dataclass(frozen=True, slots=True)
class Launched:
    """A step on the device."""

    done: Done
    is_graph: bool  # and not launched kernel by kernel
    firsts: list[int]  # the first token of each row
    results: Ints  # (N, RESULT_FIELDS), to be read once it is done, before the next but one starts
    # of each layer with alignment heads, (N, heads, D): overwritten by the next step
    queries: list[Tensor]
    logits: Tensor  # (N, V) float32: overwritten by the next step


def read_results(results: Ints) -> tuple[Ints, Floats, Floats]:
    """View results as tokens, log-probabilities and no-speech probabilities, each (N,)."""
    floats = results.view(np.float32)
    return results[:, 0], floats[:, 1], floats[:, 2]
