"""Tell raw samples from what was sent in their place: a file, or samples of another encoding.

A wrong format makes no error by itself: any bytes are samples. It is found only where it is beyond
doubt, since a session that is refused loses what is said: by the first bytes of a container, by
bytes that are as even as compressed ones, or because another encoding makes smooth audio of what
is full-scale noise in the declared one.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from streamer.audio.g711 import ALAW, MULAW

HEAD_BYTES = 12  # that name a container
CONTAINER_HEADS = {
    b"\x1a\x45\xdf\xa3": "a webm or matroska file",
    b"OggS": "an ogg file",
    b"fLaC": "a flac file",
    b"ID3\x02": "an mp3 file",
    b"ID3\x03": "an mp3 file",
    b"ID3\x04": "an mp3 file",
    b"FORM": "an aiff file",
    b"caff": "a caf file",
    b".snd\0\0\0": "an au file",
    b"#!AMR": "an amr file",
}
MP4_NAME = b"ftyp"  # behind the size of the first box, which is below 2**24

WINDOW_BYTES = 8192  # that are judged together: 1/4 s of 16-bit samples, 1 s of telephone's
NUM_NOISE_WINDOWS = 1  # in a row that are noise
NUM_LAW_NOISE_WINDOWS = 2  # ... of 8-bit codes: an overdriven hiss of speech fills one
NUM_CLEAR_WINDOWS = 4  # loud and smooth in the declared encoding, behind which nothing is judged
# Random bytes have 8.0, Opus 7.98, AAC 7.84, MP3 7.77; loud speech 7.2, its 8-bit codes 7.5
MIN_NOISE_ENTROPY = 7.7  # bits a byte
MIN_NOISE_LEVEL = 0.25  # RMS: random samples have 0.3 (A-law) to 0.58 (PCM)
MIN_NOISE_ROUGHNESS = 0.8  # 1 is white noise; the smoothest compressed audio tried has 0.82
MIN_DOUBTED_ROUGHNESS = 0.25  # of PCM, from which other encodings are tried; speech has 0.01 to 0.3
MAX_AUDIO_ROUGHNESS = 0.2
MIN_AUDIO_LEVEL, MAX_AUDIO_LEVEL = 0.001, 0.6  # RMS
# what samples are taken for where they are not what was declared, and how they are named
CANDIDATES = {
    "pcm_s16le": "pcm_s16le",
    "pcm_f32le": "pcm_f32le",
    "mulaw": "mulaw",
    "alaw": "alaw",
    "pcm_s16be": "big-endian 16-bit samples",
}


def container_name(head: bytes) -> str | None:
    """Return what the first HEAD_BYTES say a stream is, or None where they may be samples."""
    if head[4:8] == MP4_NAME and head[:1] == b"\0":
        return "an mp4 file"
    for start, name in CONTAINER_HEADS.items():
        if head.startswith(start) and (start != b"FORM" or head[8:11] == b"AIF"):
            return name
    return None


def may_be_container(head: bytes) -> bool:
    """Return whether these bytes, fewer than HEAD_BYTES, could still grow to name a container."""
    if len(head) >= HEAD_BYTES:
        return False
    is_mp4 = head[:1] in (b"", b"\0") and MP4_NAME.startswith(head[4:8])
    return is_mp4 or any(
        start.startswith(head) or head.startswith(start) for start in CONTAINER_HEADS
    )


class RawCheck:
    """Judges the first audible audio of one stream."""

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self._is_law = encoding in ("mulaw", "alaw")
        self._min_roughness = MIN_NOISE_ROUGHNESS if self._is_law else MIN_DOUBTED_ROUGHNESS
        self._window = bytearray()  # less than WINDOW_BYTES, not yet judged
        self._num_clear = 0
        self._num_noise = 0  # windows of noise in a row
        self._max_noise = NUM_LAW_NOISE_WINDOWS if self._is_law else NUM_NOISE_WINDOWS

    @property
    def is_done(self) -> bool:
        """Enough audio was what it should be."""
        return self._num_clear >= NUM_CLEAR_WINDOWS

    def take(self, data: bytes) -> str | None:
        """Take whole samples; return what they are where they cannot be what was declared."""
        self._window += data
        while len(self._window) >= WINDOW_BYTES and not self.is_done:
            found = self._judge(bytes(self._window[:WINDOW_BYTES]))
            del self._window[:WINDOW_BYTES]
            if found is not None:
                return found
        return None

    def _judge(self, window: bytes) -> str | None:
        level, roughness = _measure(_samples(window, self._encoding))
        if level < MIN_NOISE_LEVEL or roughness < self._min_roughness:
            is_clear = level > 10 * MIN_AUDIO_LEVEL and roughness < MAX_AUDIO_ROUGHNESS
            self._num_clear += is_clear
            self._num_noise = 0
            return None
        for other in CANDIDATES:
            if other != self._encoding:
                loudness, steps = _measure(_samples(window, other))
                if steps < MAX_AUDIO_ROUGHNESS and MIN_AUDIO_LEVEL < loudness < MAX_AUDIO_LEVEL:
                    return f"what looks like {CANDIDATES[other]}"
        width = 1 if self._is_law else 2
        codes = np.frombuffer(window, np.uint8)[width - 1 :: width]
        is_noise = roughness > MIN_NOISE_ROUGHNESS and _entropy(codes) > MIN_NOISE_ENTROPY
        self._num_noise = self._num_noise + 1 if is_noise else 0
        if self._num_noise >= self._max_noise:
            return "noise, as compressed audio is"
        return None


def _samples(window: bytes, encoding: str) -> npt.NDArray[np.float32]:
    """Read a window in any of CANDIDATES, full scale at 1; what is no number is beyond it."""
    match encoding:
        case "pcm_s16le" | "pcm_s16be":
            kind = "<i2" if encoding == "pcm_s16le" else ">i2"
            return np.frombuffer(window, kind).astype(np.float32) / np.float32(32768)
        case "pcm_f32le":
            floats = np.frombuffer(window, "<f4").astype(np.float32)
            floats[~np.isfinite(floats)] = 2.0
            return np.clip(floats, -2.0, 2.0)
        case _:
            table = MULAW if encoding == "mulaw" else ALAW
            return table[np.frombuffer(window, np.uint8)]


def _measure(samples: npt.NDArray[np.float32]) -> tuple[float, float]:
    """Return the RMS, and the roughness: half the mean square of steps over the variance."""
    samples = samples.astype(np.float64)
    power, variance = float(np.mean(samples**2)), float(np.var(samples))
    steps = float(np.mean(np.diff(samples) ** 2))
    return power**0.5, steps / (2 * variance) if variance > 1e-12 else 1.0


def _entropy(codes: npt.NDArray[np.uint8]) -> float:
    """Return the bits a byte holds by how often each occurs, as far as so few can show it."""
    shares = np.bincount(codes, minlength=256) / len(codes)
    shares = shares[shares > 0]
    bias = 255 / (2 * len(codes) * np.log(2))  # of a sample this small (Miller 1955)
    return float(-np.sum(shares * np.log2(shares)) + bias)
