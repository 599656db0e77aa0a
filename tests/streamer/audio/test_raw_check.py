"""Which bytes are refused in place of raw samples, and that speech never is."""

from __future__ import annotations

import numpy as np
import pytest
import soxr

from engine.api import Samples
from streamer.audio.error import UndeclaredAudio
from streamer.audio.g711 import ALAW, MULAW
from streamer.audio.pcm import ENCODINGS, AudioDecoder, AudioFormat
from streamer.audio.raw_check import WINDOW_BYTES, RawCheck, container_name, may_be_container
from tests.support.audio import babble, pcm16
from tests.support.containers import encode
from tests.support.recordings import read_manifest

SPEECH = babble(4.0)
CONTAINERS = [("webm", "libopus"), ("ogg", "libopus"), ("flac", "flac"), ("mp3", "libmp3lame")]


def write(samples: Samples, encoding: str) -> bytes:
    if encoding == "pcm_f32le":
        return samples.astype("<f4").tobytes()
    if encoding in ("mulaw", "alaw"):
        table = MULAW if encoding == "mulaw" else ALAW
        order = np.argsort(table)
        return order[np.searchsorted(table[order], samples).clip(0, 255)].astype("u1").tobytes()
    if encoding == "pcm_s16be":
        return np.frombuffer(pcm16(samples), "<i2").astype(">i2").tobytes()
    return pcm16(samples)


@pytest.mark.parametrize("size", [1, 3, 4096])
@pytest.mark.parametrize(("container", "codec"), CONTAINERS)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_container_is_refused_by_its_first_bytes(
    encoding: str, container: str, codec: str, size: int
) -> None:
    data = encode(container, codec, np.repeat(SPEECH[:16_000], 3), rate=48_000)
    decoder = AudioDecoder(AudioFormat(encoding, remedy="do this"))
    with pytest.raises(UndeclaredAudio, match=f"{encoding}.*{container}.*; do this"):
        for first in range(0, 12, size):
            decoder.decode(data[first : first + size])


@pytest.mark.parametrize(("container", "codec"), CONTAINERS)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_container_without_its_head_is_refused_as_noise(
    encoding: str, container: str, codec: str
) -> None:
    # FLAC has 8 KiB of padding behind its head
    data = encode(container, codec, soxr.resample(SPEECH, 16_000, 48_000), rate=48_000)[9_000:]
    # two seconds of telephone's bytes, a quarter of one of PCM's
    num_windows = 2 if encoding in ("mulaw", "alaw") else 1
    assert len(data) >= num_windows * WINDOW_BYTES
    found = RawCheck(encoding).take(data[: num_windows * WINDOW_BYTES])
    assert found == "noise, as compressed audio is"


@pytest.mark.parametrize("encoding", ["mulaw", "alaw"])
def test_a_hiss_as_long_as_one_window_is_no_reason_to_refuse_a_call(encoding: str) -> None:
    hiss = np.random.default_rng(1).bytes(WINDOW_BYTES)  # every code as often as any other
    assert RawCheck(encoding).take(hiss + write(SPEECH, encoding)) is None
    assert RawCheck(encoding).take(hiss + hiss) is not None


@pytest.mark.parametrize(
    ("declared", "sent"),
    [
        *((declared, "pcm_s16le") for declared in ("pcm_f32le", "mulaw", "alaw")),
        *((declared, "pcm_f32le") for declared in ("pcm_s16le", "mulaw", "alaw")),
        *((declared, "mulaw") for declared in ("pcm_s16le", "pcm_f32le")),
        ("pcm_s16le", "pcm_s16be"),
    ],
)
def test_another_encoding_is_named(declared: str, sent: str) -> None:
    found = RawCheck(declared).take(write(SPEECH[:16_000], sent))
    name = "big-endian" if sent == "pcm_s16be" else sent
    assert found is not None and name in found


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_speech_is_what_it_was_declared_to_be(encoding: str, channels: int) -> None:
    decoder = AudioDecoder(AudioFormat(encoding, channels=channels))
    samples = np.repeat(SPEECH, channels)
    assert len(decoder.decode(write(samples, encoding))[0]) == len(SPEECH)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("level", [1e-4, 0.1, 0.3, 1.0, 3.0])
def test_noise_of_any_level_is_audio(encoding: str, level: float) -> None:
    noise = level * np.random.default_rng(0).standard_normal(64_000)
    assert RawCheck(encoding).take(write(np.clip(noise, -1, 1).astype("f4"), encoding)) is None


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_silence_in_front_of_a_wrong_encoding_hides_nothing(encoding: str) -> None:
    check = RawCheck(encoding)
    silence = {"mulaw": b"\xff", "alaw": b"\xd5"}.get(encoding, b"\0")
    assert check.take(silence * 10 * WINDOW_BYTES) is None
    assert check.take(np.random.default_rng(0).bytes(2 * WINDOW_BYTES)) is not None


@pytest.mark.parametrize("head", [b"", b"\0", b"\0\0\0 ft", b"Og", b"ID3", b"FORMxxxx"])
def test_the_beginning_of_a_head_may_grow_to_one(head: bytes) -> None:
    assert may_be_container(head) and container_name(head) is None


@pytest.mark.parametrize("head", [b"x", b"ID4", b"\0\0\0 moov", b"FORMxxxxILBM", bytes(12)])
def test_other_bytes_name_no_container(head: bytes) -> None:
    assert not may_be_container(head) and container_name(head) is None


def test_no_recording_is_taken_for_another_encoding() -> None:
    for recording in read_manifest()[::8]:
        if recording.path.suffix not in (".wav", ".flac"):
            continue  # soundfile does not read all the others
        samples = recording.read()[:80_000]
        for encoding in ENCODINGS:
            found = RawCheck(encoding).take(write(np.clip(samples, -1, 1), encoding))
            assert found is None, (recording.path, encoding)
