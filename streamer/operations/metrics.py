"""What an operator sees: counters and histograms in Prometheus' format, one registry a service.

Nothing here says what was said, nor by whom: labels hold only names that this code knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from engine.api import Engine, Measured, Watched

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# of WebSocket (IANA's registry), and what stands for a close without a code or without a close
CLOSE_CODES = frozenset(range(1000, 1016)) - {1004}

# seconds; people notice from about 0.2, and give up on captions at a few
DELAY_BUCKETS_S = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 5.0, 10.0, 30.0)
LENGTH_BUCKETS_S = (0.5, 1.0, 2.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 30.0)


class Metrics:
    """All metrics of one service."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._sessions = self._counter("sessions", "Sessions opened")
        self._sessions_closed = self._counter("sessions_closed", "Sessions closed")
        self._audio = self._counter("audio_seconds", "Seconds of audio received, by all channels")
        self._segments = self._counter("segments", "Finals delivered", ("withheld",))
        self._windows = self._counter(
            "windows", "Windows that the engine was asked to decode", ("kind", "outcome")
        )
        self._window_delay = self._histogram(
            "window_seconds", "From asking the engine to its answer", DELAY_BUCKETS_S, ("kind",)
        )
        self._window_length = self._histogram(
            "window_audio_seconds", "Audio in a window", LENGTH_BUCKETS_S, ("kind",)
        )
        self._first_word = self._histogram(
            "first_word_seconds",
            "From the arrival of a segment's first audio to text",
            DELAY_BUCKETS_S,
        )
        self._final_delay = self._histogram(
            "final_delay_seconds",
            "From the arrival of a segment's last speech to its Final",
            DELAY_BUCKETS_S,
        )
        self._lag = self._histogram(
            "lag_seconds",
            "Received audio that no event covers yet, at each Partial",
            DELAY_BUCKETS_S,
        )
        self._refusals = self._counter("refusals", "Requests and sockets refused", ("reason",))
        self._responses = self._counter("responses", "Answers to HTTP requests", ("status",))
        self._closes = self._counter(
            "closes", "Sockets closed, by WebSocket code and side", ("code", "side")
        )
        self._resumes = self._counter("resumes", "Sessions taken up by a new socket", ("outcome",))

    def watch(self, name: str, meaning: str, read: Callable[[], float]) -> None:
        """Show a value that is read when the metrics are."""
        gauge = Gauge(f"wordwire_{name}", meaning, registry=self.registry)
        gauge.set_function(read)

    def watch_engine(self, engine: Engine) -> None:
        """Show what an engine counts by itself, where it does."""
        if isinstance(engine, Measured):
            self.registry.register(_EngineCounters(engine))
        if isinstance(engine, Watched):
            self.watch("engine_up", "Whether the engine's process is there", lambda: engine.is_up)
            self.watch("engine_restarts", "Engine processes restarted", lambda: engine.num_restarts)

    def session_opened(self) -> None:
        self._sessions.inc()

    def session_closed(self) -> None:
        self._sessions_closed.inc()

    def received(self, audio_s: float) -> None:
        self._audio.inc(audio_s)

    def window_asked(self, kind: str, audio_s: float) -> None:
        self._window_length.labels(kind).observe(audio_s)

    def window_answered(self, kind: str, outcome: str, delay_s: float) -> None:
        """Count an answer of the engine: "ok", or the name of what went wrong."""
        self._windows.labels(kind, outcome).inc()
        if outcome == "ok":
            self._window_delay.labels(kind).observe(delay_s)

    def first_word(self, delay_s: float) -> None:
        self._first_word.observe(delay_s)

    def final(self, delay_s: float | None, withheld: str | None) -> None:
        """Count a Final, and how late it was where that means anything."""
        self._segments.labels(withheld or "no").inc()
        if delay_s is not None:
            self._final_delay.observe(delay_s)

    def lagged(self, lag_s: float) -> None:
        self._lag.observe(lag_s)

    def refused(self, reason: str) -> None:
        self._refusals.labels(reason).inc()

    def responded(self, status: int) -> None:
        self._responses.labels(str(status)).inc()

    def closed(self, code: int, *, by_client: bool) -> None:
        # a client may close with any of 4,000 codes, each a time series of its own
        name = str(code) if code in CLOSE_CODES else "other"
        self._closes.labels(name, "client" if by_client else "server").inc()

    def resumed(self, outcome: str) -> None:
        self._resumes.labels(outcome).inc()

    def render(self) -> bytes:
        """Write all metrics in the text format."""
        return generate_latest(self.registry)

    def totals(self) -> Mapping[str, float]:
        """Sum up counters by name, for the status page."""
        return {
            sample.name.removeprefix("wordwire_").removesuffix("_total"): sample.value
            for metric in self.registry.collect()
            for sample in metric.samples
            if metric.type == "counter" and sample.name.endswith("_total") and not sample.labels
        }

    def _counter(self, name: str, meaning: str, labels: tuple[str, ...] = ()) -> Counter:
        return Counter(f"wordwire_{name}", meaning, labels, registry=self.registry)

    def _histogram(
        self,
        name: str,
        meaning: str,
        buckets: tuple[float, ...],
        labels: tuple[str, ...] = (),
    ) -> Histogram:
        return Histogram(
            f"wordwire_{name}", meaning, labels, buckets=buckets, registry=self.registry
        )


class _EngineCounters(Collector):
    """The counters of an engine, read when the metrics are."""

    def __init__(self, engine: Measured) -> None:
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        for name, value in self._engine.statistics().items():
            meaning = f"The engine's own {name.removesuffix('_total').replace('_', ' ')}"
            family = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            yield family(f"wordwire_engine_{name}", meaning, value=value)
