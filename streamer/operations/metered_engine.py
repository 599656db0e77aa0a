"""An engine seen from the service: every window is counted and timed on its way."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Callable

from engine.api import (
    SAMPLE_RATE,
    Engine,
    EngineBusy,
    Hypothesis,
    InvalidRequest,
    ModelInfo,
    Stream,
    StreamLost,
    StreamOptions,
    Window,
)
from streamer.operations.metrics import Metrics


class MeteredEngine:
    """An engine that passes everything on to another one. Implements `engine.api.Engine`."""

    def __init__(self, engine: Engine, metrics: Metrics, on_final: Callable[[float], None]) -> None:
        """Wrap an engine.

        Args:
            on_final: called with the engine's delay for a final window, in seconds.
        """
        self._engine = engine
        self._metrics = metrics
        self._on_final = on_final

    @property
    def info(self) -> ModelInfo:
        return self._engine.info

    @contextlib.asynccontextmanager
    async def stream(self, options: StreamOptions) -> AsyncIterator[Stream]:
        async with self._engine.stream(options) as stream:
            yield MeteredStream(stream, self._metrics, self._on_final)


class MeteredStream:
    """Implements `engine.api.Stream`."""

    def __init__(self, stream: Stream, metrics: Metrics, on_final: Callable[[float], None]) -> None:
        self._stream = stream
        self._metrics = metrics
        self._on_final = on_final

    async def decode(self, window: Window) -> Hypothesis:
        kind = "final" if window.is_final else "partial"
        self._metrics.window_asked(kind, len(window.audio) / SAMPLE_RATE)
        start, outcome = time.monotonic(), "failed"
        try:
            hypothesis = await self._stream.decode(window)
            outcome = "ok"
        except StreamLost:
            outcome = "lost"
            raise
        except EngineBusy:
            outcome = "busy"
            raise
        except InvalidRequest:
            outcome = "invalid"
            raise
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        finally:
            delay_s = time.monotonic() - start
            self._metrics.window_answered(kind, outcome, delay_s)
        if window.is_final and math.isfinite(window.deadline):
            # a window of a whole file has no deadline, and so says nothing of the load
            self._on_final(delay_s)
        return hypothesis
