from __future__ import annotations

import av
import numpy as np
import numpy.typing as npt
import pytest

from engine.api import Samples
from streamer.audio.opus import OPUS_RATE, OpusDecoder

FRAME = 960  # samples of 20 ms


def encode(tones: list[float], channels: int) -> list[bytes]:
    """Encode a second of a tone in each channel, a packet for every 20 ms."""
    encoder = av.CodecContext.create("libopus", "w")
    encoder.sample_rate = OPUS_RATE
    encoder.layout = "mono" if channels == 1 else "stereo"
    encoder.format = "s16"
    t = np.arange(OPUS_RATE) / OPUS_RATE
    sound = np.stack([np.sin(2 * np.pi * tone * t) for tone in tones], axis=1)
    pcm: npt.NDArray[np.int16] = (sound * 8000).astype(np.int16)
    packets = []
    for first in range(0, len(pcm), FRAME):
        frame = av.AudioFrame.from_ndarray(
            pcm[first : first + FRAME].reshape(1, -1), format="s16", layout=encoder.layout
        )
        frame.sample_rate, frame.pts = OPUS_RATE, first
        packets += [bytes(packet) for packet in encoder.encode(frame)]
    return packets


def pitch(samples: Samples) -> float:
    spectrum = np.abs(np.fft.rfft(samples[1600:]))
    return float(np.argmax(spectrum)) * 16_000 / len(samples[1600:])


@pytest.mark.parametrize("tones", [[440.0], [440.0, 1000.0]])
def test_packets_become_sound_at_16_khz(tones: list[float]) -> None:
    decoder = OpusDecoder(len(tones))
    blocks = [decoder.decode(packet) for packet in encode(tones, len(tones))] + [decoder.flush()]
    for channel, tone in enumerate(tones):
        sound = np.concatenate([block[channel] for block in blocks])
        assert sound.dtype == np.float32
        assert abs(len(sound) - 16_000) <= 400
        assert pitch(sound) == pytest.approx(tone, abs=3)
        assert np.abs(sound).max() < 0.4


def test_an_empty_packet_is_nothing() -> None:
    decoder = OpusDecoder(1)
    assert len(decoder.decode(encode([440.0], 1)[0])) == 1
    assert len(decoder.decode(b"")) == 1
