"""Speech told from noises. Recordings and real voices are used where they are at hand."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.api import SAMPLE_RATE, Samples
from streamer.vad.detector import FRAME, SpeechDetector
from tests.support.timeline import timeline

TALK = timeline([8], [1.0]).samples


def share(samples: Samples, threshold: float = 0.5) -> float:
    """Share of the frames that are taken for speech."""
    return float(np.mean(SpeechDetector(threshold).detect(samples.astype(np.float32))))


def seconds(length_s: float) -> np.ndarray:
    return np.arange(int(length_s * SAMPLE_RATE)) / SAMPLE_RATE


def chords(t: np.ndarray) -> np.ndarray:
    """Three-note chords, each half a second, with a beat."""
    roots = 220 * 2 ** (np.array([0, 5, 7, 3])[(t * 2).astype(int) % 4] / 12)
    phase = 2 * np.pi * np.cumsum(roots) / SAMPLE_RATE
    notes = sum(np.sin(phase * ratio) for ratio in (1, 5 / 4, 3 / 2, 2))
    return 0.08 * notes * np.exp(-4 * (t % 0.5))


def dial(t: np.ndarray) -> np.ndarray:
    """Keys of a telephone, 0.2 s each with as much silence."""
    rows, columns = np.array([697, 770, 852, 941]), np.array([1209, 1336, 1477])
    number = (t / 0.4).astype(int)
    keys = np.sin(2 * np.pi * rows[number % 4] * t) + np.sin(2 * np.pi * columns[number % 3] * t)
    return 0.2 * keys * (t % 0.4 < 0.2)


def ring(t: np.ndarray) -> np.ndarray:
    """A telephone that rings two seconds of six."""
    return 0.2 * (np.sin(880 * np.pi * t) + np.sin(960 * np.pi * t)) * (t % 6 < 2)


Noise = Callable[[np.ndarray, np.random.Generator], np.ndarray]
NOISES: dict[str, Noise] = {
    "exact zeros": lambda t, rng: np.zeros_like(t),
    "white noise": lambda t, rng: 0.1 * rng.standard_normal(len(t)),
    "rumble": lambda t, rng: np.cumsum(rng.standard_normal(len(t))) * 1e-3,
    "mains hum": lambda t, rng: 0.1 * sum(np.sin(2 * np.pi * 50 * k * t) / k for k in (1, 2, 3)),
    "an offset that jumps": lambda t, rng: np.where(t % 4 < 2, 0.3, -0.2),
    "chords": lambda t, rng: chords(t),
    "ringing": lambda t, rng: ring(t),
    "dialling": lambda t, rng: dial(t),
    "keystrokes": lambda t, rng: rng.standard_normal(len(t)) * 0.3 * np.exp(-300 * (t % 0.27)),
}


@pytest.mark.parametrize("name", NOISES)
def test_noises_are_no_speech(name: str) -> None:
    t = seconds(12.0)
    assert share(NOISES[name](t, np.random.default_rng(0))) < 0.02


def test_a_voice_is_speech() -> None:
    assert share(TALK[SAMPLE_RATE:-SAMPLE_RATE]) > 0.85


@pytest.mark.parametrize("name", ["mains hum", "an offset that jumps"])
def test_a_voice_is_heard_over_what_lies_below_it(name: str) -> None:
    noise = NOISES[name](np.arange(len(TALK)) / SAMPLE_RATE, np.random.default_rng(0))
    clean, mixed = (
        SpeechDetector(0.5).detect(TALK),
        SpeechDetector(0.5).detect((TALK + noise).astype(np.float32)),
    )
    assert np.mean(np.array(clean) == mixed) > 0.85


def test_a_loud_stream_does_not_deafen_the_next() -> None:
    loud = 0.5 * np.random.default_rng(0).standard_normal(20 * SAMPLE_RATE)
    alone = SpeechDetector(0.5).detect(TALK * np.float32(0.1))
    other, own = SpeechDetector(0.5), SpeechDetector(0.5)
    verdicts: list[bool] = []
    for i in range(0, len(TALK), 1600):
        other.detect(loud[i : i + 1600].astype(np.float32))
        verdicts += own.detect(TALK[i : i + 1600] * np.float32(0.1))
    assert verdicts == alone


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(1, 3000), min_size=1, max_size=5))
def test_packet_sizes_do_not_change_verdicts(sizes: list[int]) -> None:
    talk = TALK[8_000:40_000]
    whole = SpeechDetector(0.5).detect(talk)
    detector, verdicts, position, i = SpeechDetector(0.5), [], 0, 0
    while position < len(talk):
        size = sizes[i % len(sizes)]
        verdicts += detector.detect(talk[position : position + size])
        position, i = position + size, i + 1
    assert verdicts == whole
    assert len(verdicts) == len(talk) // FRAME


def test_the_threshold_decides_how_sure_is_sure_enough() -> None:
    shares = [share(TALK, threshold) for threshold in (0.0, 0.2, 0.8, 1.0)]
    assert shares == sorted(shares, reverse=True)
    assert (shares[0], shares[-1]) == (1.0, 0.0)


def test_recordings_without_speech_hold_none(recordings: list) -> None:  # type: ignore[type-arg]
    heard = {
        r.path.name: share(r.read()[: 60 * SAMPLE_RATE])
        for r in recordings
        if r.category == "nonspeech" and r.path.suffix in (".wav", ".flac")
    }
    assert heard
    assert max(heard.values()) < 0.06, heard


def test_recordings_of_speech_are_all_heard(recordings: list) -> None:  # type: ignore[type-arg]
    spoken = [r for r in recordings if r.category in ("noisy_en", "level_en", "digits_8k")]
    heard = {r.path.name: share(r.read()) for r in spoken}
    assert min(heard.values()) > 0.4, heard
