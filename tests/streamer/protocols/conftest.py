"""WhisperLive's own client, installed beside the project."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

# what the client needs beside it; the rest of what its package asks for belongs to its server
PACKAGES = ("whisper-live==0.10.0", "websocket-client==1.9.2", "scipy")
# the client imports the sound card's library; a machine without one fails to open it, as here
PYAUDIO = """
paInt16 = 8


class PyAudio:
    def open(self, **options):
        raise OSError("no sound card")

    def terminate(self):
        pass
"""


@pytest.fixture(scope="session")
def whisperlive_path(request: pytest.FixtureRequest) -> str:
    """Install WhisperLive's client beside the project; return the path that finds it."""
    assert request.config.cache is not None
    folder = request.config.cache.mkdir("whisper-live-0.10.0")
    # tests of other files run beside these, in processes of their own, and may come here first
    with (folder.parent / "whisper-live.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "pyaudio.py").exists():
            _install(folder)
    return str(folder)


def _install(folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    command += ["--upgrade", "--target", str(folder), *PACKAGES]
    try:
        installed = subprocess.run(command, capture_output=True, text=True, timeout=150)
    except subprocess.TimeoutExpired:
        pytest.skip("whisper-live cannot be installed: it takes too long")
    if installed.returncode:
        pytest.skip(f"whisper-live cannot be installed: {installed.stderr[-200:]}")
    (folder / "pyaudio.py").write_text(PYAUDIO)
