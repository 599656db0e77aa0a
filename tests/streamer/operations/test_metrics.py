"""The metrics say what happened, in a form that Prometheus reads."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

from streamer.operations.metrics import Metrics
from tests.support.engines import EchoEngine


def read(metrics: Metrics) -> dict[str, float]:
    """Parse what is rendered: name with labels, and value."""
    found = {}
    for family in text_string_to_metric_families(metrics.render().decode()):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sample.labels.items())
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def test_each_service_counts_for_itself() -> None:
    one, other = Metrics(), Metrics()
    one.session_opened()
    assert read(one)["wordwire_sessions_total"] == 1
    assert read(other)["wordwire_sessions_total"] == 0


def test_windows_are_counted_by_kind_and_outcome_and_only_answers_are_timed() -> None:
    metrics = Metrics()
    metrics.window_asked("final", 4.0)
    metrics.window_answered("final", "ok", 0.3)
    metrics.window_answered("final", "lost", 9.0)
    found = read(metrics)
    assert found["wordwire_windows_total{kind=final,outcome=ok}"] == 1
    assert found["wordwire_windows_total{kind=final,outcome=lost}"] == 1
    assert found["wordwire_window_seconds_count{kind=final}"] == 1
    assert found["wordwire_window_seconds_bucket{kind=final,le=0.3}"] == 1
    assert found["wordwire_window_audio_seconds_sum{kind=final}"] == 4.0


def test_a_final_without_a_known_delay_is_counted_but_not_timed() -> None:
    metrics = Metrics()
    metrics.final(None, "no_speech")
    metrics.final(0.6, None)
    found = read(metrics)
    assert found["wordwire_segments_total{withheld=no_speech}"] == 1
    assert found["wordwire_segments_total{withheld=no}"] == 1
    assert found["wordwire_final_delay_seconds_count"] == 1


def test_values_are_read_when_asked_for() -> None:
    metrics, level = Metrics(), [1.0]
    metrics.watch("level", "A level", lambda: level[0])
    level[0] = 7.0
    assert read(metrics)["wordwire_level"] == 7.0


def test_an_engines_own_counters_are_shown_as_what_they_are() -> None:
    metrics = Metrics()
    metrics.watch_engine(EchoEngine("echo"))
    text = metrics.render().decode()
    assert "# TYPE wordwire_engine_streams gauge" in text
    assert "# TYPE wordwire_engine_cancelled_total counter" in text
    assert "wordwire_engine_up" not in text  # it is in this process


def test_an_engine_in_its_own_process_shows_whether_it_is_there() -> None:
    class Away(EchoEngine):
        is_up = False
        num_restarts = 3

        def statistics(self) -> Mapping[str, float]:
            return {}

    metrics = Metrics()
    metrics.watch_engine(Away("echo"))
    found = read(metrics)
    assert found["wordwire_engine_up"] == 0 and found["wordwire_engine_restarts"] == 3


def test_totals_name_counters_without_labels() -> None:
    metrics = Metrics()
    metrics.received(2.5)
    metrics.refused("busy")
    assert metrics.totals()["audio_seconds"] == 2.5
    assert "refusals" not in metrics.totals()


def test_codes_that_clients_make_up_share_one_label() -> None:
    metrics = Metrics()
    for code in (1000, 1006, *range(1016, 5000)):
        metrics.closed(code, by_client=True)
    lines = metrics.render().decode().splitlines()
    counts = [line for line in lines if line.startswith("wordwire_closes_total{")]
    assert len(counts) == 3
    assert f'wordwire_closes_total{{code="other",side="client"}} {5000 - 1016}.0' in counts
