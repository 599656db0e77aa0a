"""Detect speech, frame by frame, for one channel.

A level gate first, so that a silent line costs nothing, then the neural detector. All state is
this object's, so no stream hears another; chunks are cut here, so packet sizes do not matter.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from engine.api import SAMPLE_RATE, Samples
from streamer.vad.silero import CHUNK, Detector

FRAME = CHUNK  # 32 ms
HIGH_PASS_HZ = 90.0  # Hz; above mains hum and rumble, below all but the lowest voices
MIN_LEVEL_DBFS = -70.0  # dBFS above the high-pass; below lies not even a whisper across the room
RELEASE_MARGIN = 0.15  # speech goes on until the probability falls this far below the threshold
_FFT = 1024
_TAPS = _FFT - FRAME + 1


class SpeechDetector:
    """Judges frames of one channel in order."""

    def __init__(self, threshold: float) -> None:
        """Take for speech what is more likely so than this; 0 takes everything."""
        self._threshold = threshold
        self._detector = Detector() if threshold > 0 else None
        self._rest: Samples = np.zeros(0, np.float32)  # less than a frame
        self._past: Samples = np.zeros(_TAPS - 1, np.float32)  # what the filter still needs
        self._was_speech = False

    def detect(self, samples: Samples) -> list[bool]:
        """Return one verdict for each frame that these samples complete."""
        samples = np.concatenate([self._rest, samples])
        num_frames = len(samples) // FRAME
        verdicts = [
            self._is_speech(samples[i * FRAME : (i + 1) * FRAME]) for i in range(num_frames)
        ]
        self._rest = samples[num_frames * FRAME :].copy()
        return verdicts

    def _is_speech(self, frame: Samples) -> bool:
        if self._detector is None:
            return True
        filtered = self._high_pass(frame)
        level = 10.0 * float(np.log10(np.mean(filtered * filtered) + 1e-12))
        if level < MIN_LEVEL_DBFS:
            self._was_speech = False
            return False
        release = RELEASE_MARGIN if self._was_speech else 0.0
        self._was_speech = self._detector.detect(filtered) > max(0.02, self._threshold - release)
        return self._was_speech

    def _high_pass(self, frame: Samples) -> Samples:
        """Filter a frame: (FRAME,) -> (FRAME,), by overlap-save."""
        block = np.concatenate([self._past, frame])
        self._past = block[FRAME:]
        filtered = np.fft.irfft(np.fft.rfft(block) * _high_pass_response(), _FFT)
        return filtered[_TAPS - 1 :].astype(np.float32)


@cache
def _high_pass_response() -> npt.NDArray[np.complex128]:
    """(_FFT // 2 + 1,) transfer function of a fourth-order Butterworth high-pass at HIGH_PASS_HZ.

    Its impulse response has died away before it is cut off at _TAPS (32 ms).
    """
    impulse = np.zeros(_TAPS)
    impulse[0] = 1.0
    for q in (0.54119610, 1.30656296):  # of the two sections of a fourth-order Butterworth filter
        impulse = _biquad_high_pass(impulse, q)
    return np.fft.rfft(impulse, _FFT)


def _biquad_high_pass(signal: npt.NDArray[np.float64], q: float) -> npt.NDArray[np.float64]:
    """Filter by one section, after the RBJ Audio EQ Cookbook."""
    w = 2.0 * np.pi * HIGH_PASS_HZ / SAMPLE_RATE
    alpha, cosine = np.sin(w) / (2.0 * q), np.cos(w)
    b = np.array([(1 + cosine) / 2, -(1 + cosine), (1 + cosine) / 2]) / (1 + alpha)
    a1, a2 = -2 * cosine / (1 + alpha), (1 - alpha) / (1 + alpha)
    out = np.zeros_like(signal)
    x1 = x2 = y1 = y2 = 0.0
    for i, x in enumerate(signal):
        y = b[0] * x + b[1] * x1 + b[2] * x2 - a1 * y1 - a2 * y2
        x2, x1, y2, y1 = x1, float(x), y1, float(y)
        out[i] = y
    return out
