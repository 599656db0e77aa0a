"""vLLM's realtime protocol, spoken as its example client does."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import websockets

from tests.support.audio import babble, pcm16, quiet, silent_wav, wav
from tests.support.documented_example import example_of, run_python
from tests.support.running_service import Running

TALK = np.concatenate([quiet(1.0), babble(2.0), quiet(2.0), babble(1.5, seed=2), quiet(2.0)])
TEXT = "w2 w3 w4 w5 w10 w11 w12"


class Client:
    def __init__(self, socket: Any) -> None:
        self._socket = socket

    async def send(self, kind: str, **fields: Any) -> None:
        await self._socket.send(json.dumps({"type": kind, **fields}))

    async def append(self, samples: np.ndarray) -> None:
        data = pcm16(samples)
        for at in range(0, len(data), 4096):
            audio = base64.b64encode(data[at : at + 4096]).decode()
            await self.send("input_audio_buffer.append", audio=audio)

    async def receive(self) -> dict[str, Any]:
        async with asyncio.timeout(30):
            message: dict[str, Any] = json.loads(await self._socket.recv())
            return message

    async def receive_text(self) -> dict[str, Any]:
        """Receive deltas and done; return done."""
        deltas = ""
        while (message := await self.receive())["type"] == "transcription.delta":
            deltas += message["delta"]
        assert message["type"] == "transcription.done" and message["text"] == deltas
        return message


@pytest.fixture
async def client(service: Running) -> AsyncIterator[Client]:
    async with websockets.connect(service.ws + "/v1/realtime") as socket:
        client = Client(socket)
        created = await client.receive()
        assert created["type"] == "session.created"
        assert isinstance(created["id"], str) and isinstance(created["created"], int)
        yield client


async def test_a_commit_starts_and_the_final_one_ends(client: Client) -> None:
    await client.send("session.update", model="counting")
    for _ in range(2):  # one transcription after the other
        await client.send("input_audio_buffer.commit", final=False)
        await client.append(TALK)
        await client.send("input_audio_buffer.commit", final=True)
        done = await client.receive_text()
        assert done["text"] == TEXT
        usage = done["usage"]
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


async def test_all_sound_before_the_only_commit(client: Client) -> None:
    await client.send("session.update", model="counting")
    await client.append(TALK)
    await client.send("input_audio_buffer.commit", final=True)
    assert (await client.receive_text())["text"] == TEXT


async def test_mistakes_have_the_codes_of_vllm(client: Client) -> None:
    await client.send("session.update", model="other")
    assert (await client.receive())["code"] == "model_not_found"
    await client.send("input_audio_buffer.commit", final=False)
    assert (await client.receive())["code"] == "model_not_validated"
    await client.send("nonsense")
    assert (await client.receive())["code"] == "unknown_event"
    await client.send("input_audio_buffer.append", audio="?")
    error = await client.receive()
    assert error["code"] == "invalid_audio" and isinstance(error["error"], str)
    await client.send("session.update", model="whisper-1")
    await client.append(TALK)
    await client.send("input_audio_buffer.commit", final=True)
    assert (await client.receive_text())["text"] == TEXT


async def test_a_wav_file_of_another_rate_is_named(client: Client) -> None:
    await client.send("session.update", model="counting")
    audio = base64.b64encode(silent_wav(8_000)).decode()
    await client.send("input_audio_buffer.append", audio=audio)
    error = await client.receive()
    assert error["code"] == "invalid_audio" and "8000 Hz" in error["error"]


async def test_a_transcription_of_nothing_is_done(client: Client) -> None:
    await client.send("session.update", model="counting")
    await client.send("input_audio_buffer.commit", final=True)
    assert (await client.receive_text())["text"] == ""


async def test_the_documented_client(service: Running, tmp_path: Path) -> None:
    path = tmp_path / "talk.wav"
    path.write_bytes(wav(TALK))
    host = f"{service.host}:{service.port}"
    out = await run_python(example_of("vllm-realtime.md"), host, str(path), "counting")
    assert out == TEXT + "\n"


async def test_turns_sent_in_a_row_all_come_back_in_order(client: Client) -> None:
    await client.send("session.update", model="counting")
    for seconds in (1.0, 2.0, 0.5):
        await client.append(babble(seconds))
        await client.send("input_audio_buffer.commit", final=True)
    texts = [(await client.receive_text())["text"] for _ in range(3)]
    assert texts == ["w0 w1", "w0 w1 w2 w3", "w0"]


async def test_very_much_audio_before_the_commit_is_transcribed(client: Client) -> None:
    """More than 256 events, which nobody has asked for yet."""
    await client.send("session.update", model="counting")
    sentence = np.concatenate([babble(1.0), quiet(1.0)])
    for _ in range(150):
        await client.append(sentence)
    await client.send("input_audio_buffer.commit", final=True)
    done = await client.receive_text()
    assert len(done["text"].split()) == 300


async def test_a_fault_of_the_client_ends_the_turn_and_delivers_it(client: Client) -> None:
    await client.send("session.update", model="counting")
    await client.append(babble(2.0))
    for _ in range(101):
        await client.send("nonsense")
    messages = []
    with pytest.raises(websockets.ConnectionClosedError) as closed:
        while True:
            messages.append(await client.receive())
    assert closed.value.rcvd is not None and closed.value.rcvd.code == 1008
    assert messages[-2]["type"] == "transcription.done"
    assert messages[-2]["text"] == "w0 w1 w2 w3"
    assert messages[-1]["type"] == "error"
