"""The files in deploy/ name what is there: metrics, options, commands."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from engine.batching.counters import Counters
from engine.config import EngineConfig
from streamer import options
from streamer.app import create_app
from streamer.config import ServerConfig
from tests.support.engines import EchoEngine

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def metric_names() -> set[str]:
    """Name every metric that a service may show, samples of histograms included."""
    app = create_app(lambda: EchoEngine("echo"), ServerConfig())
    app.build_middleware_stack()  # the gate counts too
    service = app.state.service
    names = {f"wordwire_engine_{name}" for name in Counters().totals()}
    # of LocalEngine.statistics and RemoteEngine
    for name in (
        "streams",
        "waiting_windows",
        "running_windows",
        "max_batch",
        "max_encode_batch",
        "pages",
        "free_pages",
    ):
        names.add(f"wordwire_engine_{name}")
    names |= {"wordwire_engine_up", "wordwire_engine_restarts"}
    for metric in service.metrics.registry.collect():
        names |= {metric.name, metric.name + "_total", metric.name + "_bucket"}
    return names


def test_dashboard_and_alerts_show_metrics_that_exist() -> None:
    dashboard = (DEPLOY / "grafana/dashboards/wordwire.json").read_text()
    assert len(json.loads(dashboard)["panels"]) > 10
    alerts = (DEPLOY / "prometheus/alerts.yml").read_text()
    used = set(re.findall(r"wordwire_\w+", dashboard + alerts))
    assert len(used) > 20 and used <= metric_names(), used - metric_names()


def test_the_example_configuration_is_one() -> None:
    table = options.read_file(str(DEPLOY / "wordwire.toml"))
    options.check_names(table, (ServerConfig, EngineConfig))


@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.cuda", "compose.yaml"])
def test_options_and_variables_in_containers_exist(name: str) -> None:
    text = (DEPLOY / name).read_text()
    known = {f.name for c in (ServerConfig, EngineConfig) for f in dataclasses.fields(c)}
    for variable in re.findall(r"WORDWIRE_(\w+)=", text):
        assert variable.lower() in known, variable
    for flag in re.findall(r'"--([a-z-]+)=', text):
        assert flag.replace("-", "_") in known, flag


def test_containers_copy_what_is_there_and_run_as_nobody_special() -> None:
    for name in ("Dockerfile", "Dockerfile.cuda"):
        text = (DEPLOY / name).read_text()
        for sources in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE):
            for source in sources.split():
                assert (ROOT / source).exists(), source
        assert re.search(r"^USER 10001$", text, re.MULTILINE)
        assert "HEALTHCHECK" in text and "requirements.lock" in text


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_prometheus_reads_its_files(tmp_path: Path) -> None:
    for name in ("prometheus.yml", "alerts.yml"):
        shutil.copy(DEPLOY / "prometheus" / name, tmp_path)
    (tmp_path / "metrics.key").write_text("x")
    subprocess.run(
        ["promtool", "check", "config", tmp_path / "prometheus.yml"], check=True, timeout=30
    )


@pytest.mark.skipif(shutil.which("caddy") is None, reason="caddy is not installed")
def test_caddy_reads_its_file() -> None:
    subprocess.run(
        ["caddy", "adapt", "--config", DEPLOY / "Caddyfile"],
        check=True,
        timeout=30,
        capture_output=True,
    )
