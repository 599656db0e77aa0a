"""The encoder that calls the runner's own `encode`: on a GPU, and in tests."""

from __future__ import annotations

import time
from collections.abc import Callable
from collections.abc import Sequence as Rows
from typing import Protocol

from engine.api import Samples
from engine.batching.encoder_interface import Encoded
from engine.batching.scheduler import ADMIT_ALL, ADMIT_NONE, Admission, Encode, Step
from engine.batching.sequence import Sequence


class InFlight(Protocol):
    """An encode that a device has not finished."""

    def is_over(self) -> bool: ...

    def wait(self) -> None: ...


# Encodes windows, or starts to: then what is in flight is returned.
EncodeTogether = Callable[[Rows[Sequence], Rows[Samples]], InFlight | None]


class DeviceEncoder:
    """Encodes with the runner's own `encode`, in the loop's thread.

    On a GPU that only starts the work, and its windows may join the next step at once: the runner
    leaves out those whose K/V are not there yet. Elsewhere it returns when they are encoded.
    """

    def __init__(self, encode: EncodeTogether) -> None:
        self._encode = encode
        self._in_flight: InFlight | None = None
        self._done: list[Encoded] = []
        self._on_news: Callable[[], None] = lambda: None

    @property
    def admission(self) -> Admission:
        # while the device encodes, windows gather for the next call
        is_free = self._in_flight is None or self._in_flight.is_over()
        return ADMIT_ALL if is_free else ADMIT_NONE

    def start(self, work: Encode, audio: Rows[Samples]) -> None:
        error: Exception | None = None
        start = time.perf_counter()
        try:
            self._in_flight = self._encode(work.sequences, audio)
        except Exception as raised:  # the loop decides what it costs
            error = raised
        duration_s = time.perf_counter() - start
        self._done.append(Encoded(work, duration_s, duration_s, error))

    def take_done(self) -> list[Encoded]:
        done, self._done = self._done, []
        return done

    def make_way(self, step: Step | None) -> None:
        if step is None and self._in_flight is not None:
            # its windows were all aborted, or there would be a step; others may wait for its end
            self._in_flight.wait()
            self._in_flight = None
            self._on_news()

    def open(self, on_news: Callable[[], None]) -> None:
        self._on_news = on_news

    def close(self) -> None:
        pass
