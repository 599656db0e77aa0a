"""Tell speech from everything else, frame by frame, for one channel.

Two stages. webrtcvad judges the sound above HIGH_PASS, since hum and rumble alone keep it open; a
frame that it takes for speech must also stand out from the room's own noise. All state is this
object's, so no stream hears another; frames are cut here, so packet sizes do not matter.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import webrtcvad

from engine.api import SAMPLE_RATE, Samples

FRAME = 480  # 30 ms, the longest that webrtcvad takes
HIGH_PASS = 120.0  # Hz; above mains hum, below nearly all of a voice's energy
MIN_LEVEL = -66.0  # dBFS above the high-pass; below lies the noise of a good 16-bit recording
MARGIN = 4.0  # dB that speech must exceed the noise floor by
FLOOR_RISE = 1.5  # dB a second that the floor follows a louder room
_FFT = 1024
_TAPS = _FFT - FRAME + 1


class SpeechDetector:
    """Judges 30 ms frames of one channel in order."""

    def __init__(self, threshold: float) -> None:
        """Start deaf to nothing.

        Args:
            threshold: 0 takes every frame for speech, 1 only what webrtcvad's strictest mode does.
        """
        self._vad = webrtcvad.Vad(min(3, int(threshold * 4))) if threshold > 0 else None
        self._rest: Samples = np.zeros(0, np.float32)  # less than a frame
        self._past: Samples = np.zeros(_TAPS - 1, np.float32)  # what the filter still needs
        self._floor: float | None = None  # dBFS of the room; None until the first frame

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
        if self._vad is None:
            return True
        filtered = self._high_pass(frame)
        level = 10.0 * float(np.log10(np.mean(filtered * filtered) + 1e-12))
        stands_out = self._stands_out(level)
        pcm = (np.clip(filtered, -1.0, 1.0) * 32767.0).astype("<i2").tobytes()
        # the verdict of every frame counts in webrtcvad's own adaptation, so it is always asked
        return self._vad.is_speech(pcm, SAMPLE_RATE) and stands_out

    def _high_pass(self, frame: Samples) -> Samples:
        """Filter a frame: (FRAME,) -> (FRAME,), by overlap-save."""
        block = np.concatenate([self._past, frame])
        self._past = block[FRAME:]
        filtered = np.fft.irfft(np.fft.rfft(block) * _high_pass_response(), _FFT)
        return filtered[_TAPS - 1 :].astype(np.float32)

    def _stands_out(self, level: float) -> bool:
        """Follow the noise floor: at once downwards, slowly upwards."""
        if self._floor is None or level < self._floor:
            # exact zeros between packets say nothing about the room
            self._floor = max(level, MIN_LEVEL)
        else:
            self._floor += FLOOR_RISE * FRAME / SAMPLE_RATE
        return level > max(self._floor + MARGIN, MIN_LEVEL)


@cache
def _high_pass_response() -> np.typing.NDArray[np.complex128]:
    """(_FFT // 2 + 1,) transfer function of a fourth-order Butterworth high-pass at HIGH_PASS.

    Its impulse response has died away long before it is cut off at _TAPS (35 ms).
    """
    impulse = np.zeros(_TAPS)
    impulse[0] = 1.0
    for q in (0.54119610, 1.30656296):  # of the two sections of a fourth-order Butterworth filter
        impulse = _biquad_high_pass(impulse, q)
    return np.fft.rfft(impulse, _FFT)


def _biquad_high_pass(
    signal: np.typing.NDArray[np.float64], q: float
) -> np.typing.NDArray[np.float64]:
    """Filter by one section, after the RBJ Audio EQ Cookbook."""
    w = 2.0 * np.pi * HIGH_PASS / SAMPLE_RATE
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
