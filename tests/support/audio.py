"""Audio of known content: a voice, a tone, silence; and the bytes in which it is sent."""

from __future__ import annotations

import io
import struct
import wave

import numpy as np

from engine.api import SAMPLE_RATE, Samples

# first three formants of six vowels, Hz (Peterson and Barney 1952)
VOWELS = np.array(
    [
        (730, 1090, 2440),
        (270, 2290, 3010),
        (300, 870, 2240),
        (530, 1840, 2480),
        (570, 840, 2410),
        (660, 1720, 2410),
    ]
)
SYLLABLE_S = 0.2


def babble(seconds: float, seed: int = 3) -> Samples:
    """Make audio that the speech detector takes for a voice throughout.

    Args:
        seconds: whole half seconds become whole words of CountingEngine.
        seed: 2 and 3 have been tried; with others the detector hears a pause here and there.
    """
    rng = np.random.default_rng(seed)
    t = np.arange(int(seconds * SAMPLE_RATE)) / SAMPLE_RATE
    num_syllables = int(np.ceil(seconds / SYLLABLE_S)) + 2
    at = np.arange(num_syllables) * SYLLABLE_S
    targets = VOWELS[rng.integers(0, len(VOWELS), num_syllables)]
    formants = [np.interp(t, at, targets[:, i]) for i in range(3)]
    pitch = np.interp(t, at, rng.uniform(95, 150, num_syllables))
    phase = 2 * np.pi * np.cumsum(pitch) / SAMPLE_RATE
    voice = np.zeros_like(t)
    for harmonic in range(1, 36):
        gain = sum(
            amplitude / (1 + ((harmonic * pitch - formant) / bandwidth) ** 2)
            for formant, bandwidth, amplitude in zip(
                formants, (80, 110, 160), (1.0, 0.5, 0.25), strict=True
            )
        )
        voice += gain * np.sin(harmonic * phase) / np.sqrt(harmonic)
    within = (t / SYLLABLE_S) % 1
    voice *= np.clip(np.sqrt(np.sin(np.pi * within)), 0.08, 1) / np.abs(voice).max()
    voice += 0.06 * rng.standard_normal(len(t)) * (within > 0.82)  # as of fricatives
    return (0.5 * voice / np.abs(voice).max()).astype(np.float32)


def tone(
    frequency_hz: float = 440.0,
    seconds: float = 1.0,
    *,
    rate: int = SAMPLE_RATE,
    level: float = 0.4,
) -> Samples:
    """Make a sine."""
    t = np.arange(int(rate * seconds)) / rate
    return (level * np.sin(2 * np.pi * frequency_hz * t)).astype(np.float32)


def quiet(seconds: float) -> Samples:
    """Make the noise of a room where nobody speaks."""
    noise = np.random.default_rng(1).standard_normal(int(seconds * SAMPLE_RATE))
    return (1e-4 * noise).astype(np.float32)


def pcm16(samples: Samples) -> bytes:
    """Convert to 16 bits; (T, C) becomes interleaved."""
    return (samples * 32767).astype("<i2").tobytes()


def wav(*channels: Samples, rate: int = SAMPLE_RATE) -> bytes:
    """Write a WAV file of 16 bits."""
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setparams((len(channels), 2, rate, 0, "NONE", ""))
        writer.writeframes(pcm16(np.stack(channels, axis=1).reshape(-1)))
    return file.getvalue()


def silent_wav(rate: int) -> bytes:
    """Write a WAV file of a second of silence."""
    return wav(np.zeros(rate, np.float32), rate=rate)


def riff(
    data: bytes,
    *,
    tag: int = 1,
    rate: int = SAMPLE_RATE,
    channels: int = 1,
    bits: int = 16,
    extra: bytes = b"",
    size: int | None = None,
    tail: bytes = b"",
    riff_size: int | None = None,
) -> bytes:
    """Write a WAV file by hand: also with headers that libraries would not write.

    Args:
        extra: chunks before the format.
        size: of the data, as the header has it; None: the true one.
        tail: follows the data.
        riff_size: of all, as the header has it; None: the one that goes with the data.
    """
    frame = channels * bits // 8
    fmt = struct.pack("<4sIHHIIHH", b"fmt ", 16, tag, channels, rate, rate * frame, frame, bits)
    body = extra + fmt + struct.pack("<4sI", b"data", len(data) if size is None else size) + data
    total = 4 + len(body) if riff_size is None else riff_size
    return struct.pack("<4sI4s", b"RIFF", total, b"WAVE") + body + tail
