"""The call client against the running service."""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

from clients import call
from tests.support.audio import babble, quiet
from tests.support.running_service import Running


@pytest.fixture
def recording(tmp_path: Path) -> str:
    caller = np.concatenate([babble(2.0), quiet(4.0)])
    agent = np.concatenate([quiet(2.5), babble(2.0), quiet(1.5)])
    path = tmp_path / "call.wav"
    soundfile.write(path, np.stack([caller, agent], axis=1), 16_000)
    return str(path)


def parsed(service: Running, *words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    call.add_arguments(parser)
    return parser.parse_args(["--url", service.http, *words])


async def run(service: Running, *words: str) -> int:
    return await asyncio.to_thread(call.run, parsed(service, *words))


async def test_both_sides_of_a_call_are_printed_with_their_times(
    service: Running, recording: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run(service, recording, "--fast") == 0
    # sent faster than it is spoken, the sides become final in either order
    lines = sorted(capsys.readouterr().out.splitlines(), key=lambda line: float(line.split()[0]))
    assert [line.split(None, 1)[1] for line in lines] == [
        "inbound: w0 w1 w2 w3",
        "outbound: w5 w6 w7 w8",
    ]
    assert float(lines[1].split()[0]) == pytest.approx(2.5, abs=0.5)


async def test_a_bad_network_changes_nothing_but_what_is_lost(
    service: Running, recording: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run(service, recording, "--fast", "--shuffle", "12", "--json") == 0
    messages = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    said = {m["track"]: m["text"].strip() for m in messages if m["type"] == "final"}
    assert said == {"inbound": "w0 w1 w2 w3", "outbound": "w5 w6 w7 w8"}
    assert messages[-1]["type"] == "done"
    assert messages[-1]["lost_chunks"] == 0
    assert await run(service, recording, "--fast", "--loss", "0.02", "--json") == 0
    messages = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert messages[-1]["lost_chunks"] > 0
    assert messages[-1]["duration"] == pytest.approx(6.0, abs=0.1)


async def test_a_mono_file_is_a_call_with_one_track(
    service: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mono.wav"
    soundfile.write(path, np.concatenate([babble(1.0), quiet(1.0)]), 16_000)
    assert await run(service, str(path), "--fast", "--call-sid", "CA77", "--json") == 0
    messages = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {m["call"] for m in messages} == {"CA77"}
    started = next(m for m in messages if m["type"] == "stream_started")
    assert started["tracks"] == ["inbound"]


async def test_what_cannot_be_used_is_said_in_one_line(
    service: Running, recording: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run(service, "nowhere.wav", "--fast") == 1
    assert "nowhere.wav does not exist" in capsys.readouterr().err
    assert await run(service, recording, "--url", "ws://127.0.0.1:9") == 1
    assert "no server" in capsys.readouterr().err
