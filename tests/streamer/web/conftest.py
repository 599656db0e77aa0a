"""A microphone for the browser."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import soundfile
import soxr

from tests.support.browser import FAKE_DEVICE


@pytest.fixture(scope="session")
def microphone(tmp_path_factory: pytest.TempPathFactory, recordings: list[Any]) -> list[str]:
    """Return the flags that make Chromium hear a recording."""
    talk = next(r for r in recordings if r.path.name == "jfk.wav")
    path = tmp_path_factory.mktemp("audio") / "talk.wav"
    samples = soxr.resample(talk.read(), 16_000, 48_000)
    soundfile.write(path, np.concatenate([samples, np.zeros(48_000)]), 48_000)
    return [*FAKE_DEVICE, f"--use-file-for-fake-audio-capture={path}"]
