"""The command as a person starts it: in a process of its own."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile

import wordwire
from tests.support.audio import babble, quiet, wav
from tests.support.documented_example import example_of, run_python
from tests.support.running_service import running

ROOT = Path(__file__).parent.parent
TALK = ROOT.parent / "shared/data/speech/read/jfk.wav"


def _run(*arguments: str, timeout_s: float = 150) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "wordwire", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )


@contextlib.contextmanager
def _serving(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Start `wordwire serve` on a free port; yields the process and the port."""
    process = subprocess.Popen(
        [sys.executable, "-m", "wordwire", "serve", "--port", "0", *arguments],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.search(r":(\d+)$", line.strip())
        assert found, line
        yield process, int(found[1])
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


def _status(port: int, path: str) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def _read_until(process: subprocess.Popen[str], words: str) -> None:
    """Return when the service has logged a line with these words."""
    assert process.stderr is not None
    for line in process.stderr:
        if words in line:
            return
    raise AssertionError(f"ended without {words!r}")


def _wait_ready(port: int) -> None:
    deadline = time.monotonic() + 120
    while _status(port, "/readyz") != 200:
        assert time.monotonic() < deadline, "never ready"
        time.sleep(0.1)


def _loaded_by(code: str) -> set[str]:
    """Run code in an interpreter of its own; return the modules that are loaded afterwards."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return set(done.stdout.split())


def test_importing_wordwire_loads_no_package_of_ours_and_nothing_heavy() -> None:
    loaded = {name.split(".")[0] for name in _loaded_by("import wordwire")}
    heavy = {"torch", "numpy", "starlette", "uvicorn", "websockets", "soundfile", "av"}
    assert not loaded & (heavy | {"clients", "streamer", "engine"})


def test_connect_loads_only_what_the_client_loads() -> None:
    loaded = _loaded_by("from wordwire import connect, Final, Partial, Start")
    assert loaded - {"wordwire"} <= _loaded_by("import wordwire, clients.client")
    assert not {"torch", "starlette", "uvicorn", "soundfile", "av"} & loaded


def test_messages_load_no_socket() -> None:
    loaded = _loaded_by("from wordwire import Final, Partial, Start")
    assert not {"torch", "starlette", "websockets", "clients"} & loaded


def test_every_public_name_is_that_of_its_module() -> None:
    import clients.client
    import clients.handshake
    import streamer.protocol

    assert wordwire.connect is clients.client.connect
    assert wordwire.Refused is clients.handshake.Refused
    assert wordwire.Partial is streamer.protocol.Partial
    for name in wordwire.__all__:
        assert getattr(wordwire, name) is not None and name in dir(wordwire)


def test_every_message_of_the_server_is_public() -> None:
    from streamer.protocol import SERVER_TYPES

    assert {cls.__name__ for cls in SERVER_TYPES.values()} <= set(wordwire.__all__)


async def test_the_client_that_the_readme_shows(tmp_path: Path) -> None:
    path = tmp_path / "talk.wav"
    talk = np.concatenate([quiet(1.0), babble(2.0), quiet(2.0), babble(1.5, seed=2)])
    path.write_bytes(wav(talk))
    async with running() as service:
        code = example_of("../README.md").replace("ws://localhost:8000", service.ws)
        out = await run_python(code, str(path), cwd=ROOT)
    finals = [line.split(maxsplit=1)[1] for line in out.splitlines() if "..." not in line]
    assert finals == ["w2 w3 w4 w5", "w10 w11 w12"]


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Transcriber'"):
        _ = wordwire.Transcriber  # type: ignore[attr-defined]


def test_help_shows_every_option_in_groups(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        wordwire.main(["serve", "--help"])
    text = capsys.readouterr().out
    for word in ("engine:", "limits:", "--model", "--device", "--max-sessions", "--port"):
        assert word in text


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--port", "70000"], "port"),
        (["--port", "many"], "--port"),
        (["--device", "toaster"], "device"),
        (["--tls-key", "key.pem"], "tls_certificate"),
        (["--config", "/nowhere.toml"], "nowhere.toml"),
        (["--port", "0", "--tls-key", "/no.key", "--tls-certificate", "/no.pem"], "/no.pem"),
    ],
)
def test_options_that_cannot_be_used_end_with_code_2(
    arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = wordwire.main(["serve", *arguments])
    except SystemExit as stop:  # argparse
        code = int(stop.code or 0)
    assert code == 2 and reason in capsys.readouterr().err


def test_a_missing_model_is_said_in_one_line() -> None:
    done = _run("serve", "--port", "0", "--model", "/nowhere/model")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    (line,) = [text for text in done.stderr.splitlines() if text.startswith("wordwire: ")]
    assert "/nowhere/model" in line


def test_a_broken_model_is_said_in_one_line(tmp_path: Path) -> None:
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"no weights")
    done = _run("serve", "--port", "0", "--model", str(tmp_path))
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert len([t for t in done.stderr.splitlines() if t.startswith("wordwire: ")]) == 1


@pytest.mark.parametrize("place", [[], ["--no-engine-process"]], ids=["process", "thread"])
def test_a_load_that_takes_too_long_ends_with_code_2(place: list[str]) -> None:
    done = _run("serve", "--port", "0", "--engine-load-timeout-s", "0.2", *place)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    (line,) = [text for text in done.stderr.splitlines() if text.startswith("wordwire: ")]
    assert "not ready within 0.2 s" in line


def test_a_port_that_is_taken_is_said_in_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = _run("serve", "--port", str(taken.getsockname()[1]))
    assert done.returncode == 2
    assert "cannot listen" in done.stderr and "Traceback" not in done.stderr


def test_without_a_server_the_client_says_how_to_start_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.wav"
    soundfile.write(path, [0.0] * 1600, 16_000)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        assert wordwire.main(["transcribe", str(path), "--url", f"ws://127.0.0.1:{port}"]) == 1
    assert "wordwire serve" in capsys.readouterr().err


def test_a_file_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert wordwire.main(["transcribe", "/nowhere.wav"]) == 1
    assert "/nowhere.wav does not exist" in capsys.readouterr().err


@pytest.mark.model
def test_a_served_model_transcribes_a_file_and_stops_cleanly(tmp_path: Path) -> None:
    if not TALK.is_file():
        pytest.skip("the speech data is not on this machine")
    with _serving("--model", "base") as (process, port):
        assert _status(port, "/healthz") == 200  # from the start, while the model loads
        url = f"http://127.0.0.1:{port}"
        # the client waits for the model by itself
        done = _run("transcribe", str(TALK), "--fast", "--url", url, "--format", "srt")
        assert done.returncode == 0, done.stderr
        assert "for your country" in done.stdout.lower() and "00:00:0" in done.stdout
        output = tmp_path / "talk.json"
        done = _run(
            "transcribe", str(TALK), "--fast", "--url", url, "--format", "json", "-o", str(output)
        )
        assert done.returncode == 0 and done.stdout == ""
        assert "your country" in output.read_text()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


@pytest.mark.model
def test_a_stop_while_the_model_loads_is_clean() -> None:
    with _serving("--model", "tiny.en") as (process, _port):
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


@pytest.mark.model
def test_a_second_interrupt_exits_at_once() -> None:
    with _serving("--model", "tiny.en", "--drain-timeout-s", "60") as (process, port):
        _wait_ready(port)
        # a session that nobody ends holds the first stop up
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(
                b"GET /v1/stream?language=en HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n"
                b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
            )
            assert b"101" in client.recv(4096)
            _read_until(process, "opened")
            os.kill(process.pid, signal.SIGINT)
            _read_until(process, "finishing 1 sessions")  # two that wait to be handled are one
            os.kill(process.pid, signal.SIGINT)
            began = time.monotonic()
            process.wait(60)
            assert time.monotonic() - began < 20  # the drain alone would take 60 s
