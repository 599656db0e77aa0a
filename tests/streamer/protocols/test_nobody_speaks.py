"""Audio without a voice has no text, whatever the model would make of it."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator

import httpx
import numpy as np
import pytest
import soxr
import websockets

from clients.telephone import encode_mulaw
from engine.api import Samples, Word
from tests.support.audio import babble, pcm16, wav
from tests.support.engines import ScriptedEngine
from tests.support.running_service import Running, running
from tests.support.timeline import Recogniser

S = 16_000
TRANSCRIPTION = "conversation.item.input_audio_transcription"


def seconds(length_s: float) -> np.ndarray:
    return np.arange(int(length_s * S)) / S


def white(length_s: float, level_db: float) -> np.ndarray:
    return 10 ** (level_db / 20) * np.random.default_rng(1).standard_normal(int(length_s * S))


def music(length_s: float = 45.0) -> np.ndarray:
    """Chords, a melody over them, and a beat."""
    rng = np.random.default_rng(4)
    beats = []
    for number in range(int(length_s * 2)):
        t = seconds(0.5)
        root = (220.0, 196.0, 174.6, 164.8)[number // 4 % 4]
        chord = [root, root * 2 ** (4 / 12), root * 2 ** (7 / 12)]
        beat = sum(np.sin(2 * np.pi * f * t) + 0.4 * np.sin(4 * np.pi * f * t) for f in chord) / 5
        beat += 0.5 * np.sin(4 * np.pi * chord[rng.integers(3)] * t) * np.exp(-4 * t)
        beat += (0.6 if number % 2 else 0.3) * rng.standard_normal(len(t)) * np.exp(-40 * t)
        beats.append(beat)
    whole = np.concatenate(beats)
    return 0.158 * whole / np.sqrt(np.mean(whole**2))  # -16 dBFS


def tones(*pairs: tuple[float, float], on_s: float, off_s: float) -> np.ndarray:
    """Two tones at a time, as telephones make them, each pair followed by silence."""
    t = seconds(on_s)
    bursts = [0.2 * (np.sin(2 * np.pi * a * t) + np.sin(2 * np.pi * b * t)) for a, b in pairs]
    return np.concatenate([np.pad(burst, (0, int(off_s * S))) for burst in bursts])


KEYS = [(row, column) for row in (697, 770, 852, 941) for column in (1209, 1336, 1477)]


def rumble(length_s: float) -> np.ndarray:
    """Noise below 120 Hz, at -14 dBFS."""
    spectrum = np.fft.rfft(white(length_s, 0.0))
    spectrum[int(120 * length_s) :] = 0
    low = np.fft.irfft(spectrum)
    return 0.2 * low / np.sqrt(np.mean(low**2))


def sounds() -> Iterator[tuple[str, np.ndarray]]:
    t = seconds(15.0)
    hiss = white(15.0, -62.0)
    yield "a minute of zeros", np.zeros(60 * S)
    yield "a short noise", white(0.3, -30.0)
    yield "loud noise", white(20.0, -22.0)
    yield "music", music()
    yield "ringing", tones(*[(440, 480)] * 6, on_s=2.0, off_s=4.0)
    yield "dialling", np.pad(tones(*KEYS, on_s=0.1, off_s=0.08), S)
    yield "a noisy line", white(10.0, -30.0)
    yield "mains hum", 0.1 * np.sin(2 * np.pi * 50 * t) + hiss
    hum = sum(np.sin(2 * np.pi * 100 * k * t) / k for k in (1, 2, 3, 5))
    yield "mains hum with harmonics", 0.05 * hum + hiss
    yield "rumble", rumble(15.0) + hiss
    yield "an offset", 0.3 + hiss
    yield "an offset that jumps", 0.25 * np.sign(np.sin(2 * np.pi * 0.13 * t)) + hiss


SOUNDS = {name: np.clip(sound, -1, 1).astype(np.float32) for name, sound in sounds()}


@pytest.fixture
def served_engine() -> ScriptedEngine:
    """An engine that hears something in every window."""
    return ScriptedEngine(Recogniser((), invent=" Thank you."))


async def stream(service: Running, data: bytes, query: str) -> list[str]:
    """Return the types of all messages."""
    async with websockets.connect(f"{service.ws}/v1/stream?{query}") as socket:
        for first in range(0, len(data), 64_000):
            await socket.send(data[first : first + 64_000])
        await socket.send('{"type":"end"}')
        kinds = [json.loads(text)["type"] async for text in socket]
    assert socket.close_code == 1000
    return kinds


@pytest.mark.parametrize("name", SOUNDS)
async def test_a_live_session_has_no_text(service: Running, name: str) -> None:
    assert await stream(service, pcm16(SOUNDS[name]), "sample_rate=16000") == ["ready", "done"]


@pytest.mark.parametrize("name", ["music", "ringing", "dialling", "a noisy line"])
async def test_a_telephone_line_has_no_text(service: Running, name: str) -> None:
    data = encode_mulaw(soxr.resample(SOUNDS[name], S, 8_000))
    assert await stream(service, data, "encoding=mulaw&sample_rate=8000") == ["ready", "done"]


@pytest.mark.parametrize("name", ["a minute of zeros", "a short noise", "music"])
async def test_a_file_has_no_text_in_any_format(service: Running, name: str) -> None:
    expected = {"text": "\n", "srt": "", "vtt": "WEBVTT\n"}
    async with httpx.AsyncClient(base_url=service.http, timeout=30) as client:
        for kind in ("json", "verbose_json", *expected):
            answer = await client.post(
                "/v1/audio/transcriptions",
                data={
                    "model": "whisper-1",
                    "response_format": kind,
                    **({"timestamp_granularities[]": "word"} if kind == "verbose_json" else {}),
                },
                files={"file": ("sound.wav", wav(SOUNDS[name][: 15 * S]))},
            )
            assert answer.status_code == 200
            if kind in expected:
                assert answer.text == expected[kind]
                continue
            body = json.loads(answer.text, parse_constant=pytest.fail)
            assert body["text"] == "" and not body.get("words")


def pink(length_s: float, level_db: float) -> np.ndarray:
    """Noise of a room, louder the deeper."""
    spectrum = np.fft.rfft(white(length_s, 0.0))
    noise = np.fft.irfft(spectrum / np.sqrt(np.arange(len(spectrum)) + 1))
    return 10 ** (level_db / 20) * noise / np.sqrt(np.mean(noise**2))


SENTENCE = babble(2.0)
WORDS = tuple(Word(f" w{n}", n * 8_000, (n + 1) * 8_000, 0.9) for n in range(4))
WITH_NOISE: Samples = np.concatenate([SENTENCE, pink(3.0, -48.0)]).astype(np.float32)


async def test_noise_behind_a_sentence_is_not_committed_as_speech() -> None:
    engine = ScriptedEngine(Recogniser(WORDS, invent=" Thank you."))
    async with running(lambda: engine) as service:
        url = f"{service.ws}/v1/realtime?intent=transcription"
        async with websockets.connect(url) as socket, asyncio.timeout(30):
            data = pcm16(soxr.resample(WITH_NOISE, S, 24_000))
            for first in range(0, len(data), 48_000):
                audio = base64.b64encode(data[first : first + 48_000]).decode()
                await socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))
            texts, errors = [], []
            while not errors:
                event = json.loads(await socket.recv())
                if event["type"] == f"{TRANSCRIPTION}.completed":
                    texts.append(event["transcript"])
                    # the stop button, after the detector closed the turn
                    await socket.send('{"type":"input_audio_buffer.commit"}')
                elif event["type"] == "error":
                    errors.append(event["error"]["code"])
            # what would follow comes before the answer to this
            await socket.send('{"type":"input_audio_buffer.clear"}')
            assert json.loads(await socket.recv())["type"] == "input_audio_buffer.cleared"
    assert (texts, errors) == (["w0 w1 w2 w3"], ["input_audio_buffer_commit_empty"])
