"""`wordwire transcribe` against a service on a free port."""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import re
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile

from clients import captions, transcribe
from streamer.protocol import Start
from tests.support.audio import babble, quiet
from tests.support.running_service import Running

WORDS = "w0 w1 w2 w3"


@pytest.fixture(autouse=True)
def _everything_is_speech(monkeypatch: pytest.MonkeyPatch) -> None:
    # detection has tests of its own, with real speech
    def build(*arguments: object, **fields: object) -> Start:
        start = captions.build_start(*arguments, **fields)  # type: ignore[arg-type]
        return Start(**{**_fields(start), "vad_threshold": 0.0})  # type: ignore[arg-type]

    monkeypatch.setattr(transcribe, "build_start", build)


def _fields(start: Start) -> dict[str, object]:
    return {name: getattr(start, name) for name in Start.__dataclass_fields__}


@pytest.fixture
def talk(tmp_path: Path) -> str:
    path = tmp_path / "talk.wav"
    soundfile.write(path, np.concatenate([babble(2.0), quiet(0.5)]), 16_000)
    return str(path)


async def _transcribe(service: Running, *words: str) -> int:
    parser = argparse.ArgumentParser()
    transcribe.add_arguments(parser)
    # in a thread, as the command owns its event loop
    arguments = parser.parse_args([*words, "--url", service.ws])
    return await asyncio.to_thread(transcribe.run, arguments)


async def test_text_is_the_default(
    service: Running, talk: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await _transcribe(service, talk, "--fast") == 0
    assert capsys.readouterr().out == WORDS + "\n"


async def test_files_are_sent_at_their_own_pace_unless_told_otherwise(
    service: Running, talk: str, tmp_path: Path
) -> None:
    began = time.monotonic()
    assert await _transcribe(service, talk) == 0
    assert time.monotonic() - began >= 2.5
    # long enough for a machine that is slow or stands still
    soundfile.write(tmp_path / "long.wav", np.tile(babble(2.0), 15), 16_000)
    began = time.monotonic()
    assert await _transcribe(service, str(tmp_path / "long.wav"), "--fast") == 0
    assert time.monotonic() - began < 30.0


@pytest.mark.parametrize("kind", ["json", "srt", "vtt"])
async def test_other_formats_come_at_the_end(
    service: Running, talk: str, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await _transcribe(service, talk, "--fast", "--format", kind) == 0
    text = capsys.readouterr().out
    assert (
        " ".join(re.findall(r"w\d", text if kind != "json" else json.loads(text)["text"])) == WORDS
    )
    if kind == "json":
        assert [w["start"] for w in json.loads(text)["segments"][0]["words"]] == [0, 0.5, 1, 1.5]


async def test_a_transcript_can_be_written_to_a_file(
    service: Running, talk: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "talk.txt"
    assert await _transcribe(service, talk, talk, "--fast", "-o", str(output)) == 0
    assert output.read_text() == f"{WORDS}\n{WORDS}\n"
    assert capsys.readouterr().out == ""


async def test_channels_can_be_kept_apart(
    service: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "call.wav"
    soundfile.write(path, np.stack([babble(1.0), babble(1.0, seed=2)], axis=1), 16_000)
    assert await _transcribe(service, str(path), "--fast", "--split-channels") == 0
    lines = capsys.readouterr().out.splitlines()
    assert sorted(lines) == ["[0] w0 w1", "[1] w0 w1"]


@pytest.mark.parametrize("is_raw", [False, True])
async def test_standard_input_may_be_a_container_or_bare_samples(
    service: Running,
    is_raw: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pipe = io.BytesIO()
    if is_raw:
        pipe.write(babble(2.0).astype("<f4").tobytes())
    else:
        soundfile.write(pipe, babble(2.0), 16_000, format="WAV")
    pipe.seek(0)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(pipe))
    options = ["--encoding", "pcm_f32le"] if is_raw else []
    assert await _transcribe(service, "-", *options) == 0
    assert capsys.readouterr().out == WORDS + "\n"


async def test_what_cannot_be_read_or_written_is_said_in_one_line(
    service: Running, talk: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text.wav").write_text("not audio")
    for words in (
        [str(tmp_path / "text.wav")],
        [str(tmp_path / "absent.wav")],
        [talk, "--fast", "-o", str(tmp_path / "no/such/folder.txt")],
        [talk, "--fast", "--language", "tlh-too-long", "--prompt", "x" * 70_000],
    ):
        assert await _transcribe(service, *words) == 1
        errors = capsys.readouterr().err
        assert errors.startswith("wordwire: ") and errors.count("\n") == 1, errors


def test_progress_is_shown_for_long_files_only() -> None:
    began = time.monotonic() - 10.0
    line = transcribe._progress("/a/talk.wav", 30.0, 3600.0, began)
    assert re.fullmatch(r"talk.wav  0:30 / 1:00:00  1%  3.0x", line)
    assert transcribe._progress("talk.wav", 1.0, 2.0, began) == ""
    assert transcribe._progress("-", 1.0, None, began) == ""
