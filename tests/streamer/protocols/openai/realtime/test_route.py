"""Realtime transcription: OpenAI's own SDK, unmodified, and what it would not send."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import soxr
import websockets

from clients.telephone import encode_mulaw
from streamer.config import ServerConfig
from tests.support.audio import babble, pcm16, quiet, silent_wav, wav
from tests.support.documented_example import example_of, run_python
from tests.support.running_service import Running, running

openai = pytest.importorskip("openai")

TALK = np.concatenate([quiet(1.0), babble(2.0), quiet(2.0), babble(1.5, seed=2), quiet(2.0)])
FIRST, SECOND = "w2 w3 w4 w5", "w10 w11 w12"
TRANSCRIPTION = "conversation.item.input_audio_transcription"


def pcm24(samples: np.ndarray) -> bytes:
    return pcm16(soxr.resample(samples, 16_000, 24_000))


def mulaw_8k(samples: np.ndarray) -> bytes:
    return encode_mulaw(soxr.resample(samples, 16_000, 8_000))


def client_of(service: Running) -> Any:
    return openai.AsyncOpenAI(base_url=service.http + "/v1", api_key="any")


def connect(service: Running, **options: Any) -> Any:
    return client_of(service).realtime.connect(extra_query={"intent": "transcription"}, **options)


def config(**source: Any) -> dict[str, Any]:
    return {"type": "transcription", "audio": {"input": source}}


async def send_audio(connection: Any, data: bytes, chunk: int = 4800) -> None:
    for at in range(0, len(data), chunk):
        audio = base64.b64encode(data[at : at + chunk]).decode()
        await connection.input_audio_buffer.append(audio=audio)


async def receive_until(connection: Any, kind: str, count: int = 1) -> list[Any]:
    """Receive events up to the count-th of a kind."""
    events: list[Any] = []
    async with asyncio.timeout(30):
        while sum(event.type == kind for event in events) < count:
            events.append(await connection.recv())
    return events


def deltas_of(events: list[Any], item_id: str) -> str:
    return "".join(
        e.delta for e in events if e.type == f"{TRANSCRIPTION}.delta" and e.item_id == item_id
    )


async def test_turns_with_speech_detection(service: Running) -> None:
    async with connect(service) as connection:
        created = await connection.recv()
        assert created.type == "session.created" and created.session.type == "transcription"
        await connection.session.update(
            session=config(
                transcription={"model": "whisper-1", "language": "en"},
                turn_detection={"type": "server_vad", "silence_duration_ms": 600},
            )
        )
        updated = await connection.recv()
        assert updated.type == "session.updated"
        assert updated.session.audio.input.transcription.language == "en"
        assert updated.session.audio.input.turn_detection.silence_duration_ms == 600
        assert updated.session.audio.input.turn_detection.threshold == 0.5
        await send_audio(connection, pcm24(TALK))
        events = await receive_until(connection, f"{TRANSCRIPTION}.completed", 2)
    item = events[0].item_id
    first = [event for event in events if getattr(event, "item_id", None) == item]
    kinds = [event.type for event in events]
    assert kinds[:5] == [
        "input_audio_buffer.speech_started",
        "input_audio_buffer.speech_stopped",
        "input_audio_buffer.committed",
        "conversation.item.added",
        "conversation.item.done",
    ]
    assert set(kinds[5 : kinds.index(f"{TRANSCRIPTION}.completed")]) == {f"{TRANSCRIPTION}.delta"}
    assert first[-1].transcript == FIRST == deltas_of(events, item)
    assert first[-1].usage.type == "duration" and first[-1].usage.seconds > 2
    assert first[0].audio_start_ms == pytest.approx(700, abs=150)  # with 300 ms of padding
    assert first[1].audio_end_ms == pytest.approx(3600, abs=200)  # with the silence
    commits = [event for event in events if event.type == "input_audio_buffer.committed"]
    assert commits[0].previous_item_id is None
    assert commits[1].previous_item_id == commits[0].item_id
    assert events[-1].transcript == SECOND == deltas_of(events, events[-1].item_id)
    assert len({event.event_id for event in events}) == len(events)


async def test_manual_commits_make_the_turns(service: Running) -> None:
    async with connect(service) as connection:
        await connection.session.update(session=config(turn_detection=None))
        await receive_until(connection, "session.updated")
        for part, text in ((TALK[: 16_000 * 4], FIRST), (TALK[16_000 * 4 :], SECOND)):
            await send_audio(connection, pcm24(part))
            await connection.input_audio_buffer.commit()
            events = await receive_until(connection, f"{TRANSCRIPTION}.completed")
            assert [e.type for e in events][:3] == [
                "input_audio_buffer.committed",
                "conversation.item.added",
                "conversation.item.done",
            ]
            assert events[-1].transcript == text == deltas_of(events, events[-1].item_id)


async def test_live_models_write_while_people_speak(service: Running) -> None:
    async with connect(service) as connection:
        await connection.session.update(
            session=config(
                turn_detection=None,
                transcription={"model": "gpt-realtime-whisper", "delay": "minimal"},
            )
        )
        await receive_until(connection, "session.updated")
        await send_audio(connection, pcm24(np.concatenate([quiet(0.5), babble(4.0), quiet(0.1)])))
        events = await receive_until(connection, f"{TRANSCRIPTION}.delta")
        assert [event.type for event in events] == [f"{TRANSCRIPTION}.delta"]
        await connection.input_audio_buffer.commit()
        events += await receive_until(connection, f"{TRANSCRIPTION}.completed")
    assert len({e.item_id for e in events if hasattr(e, "item_id")}) == 1
    assert deltas_of(events, events[0].item_id) == events[-1].transcript
    assert events[-1].transcript.split() == [f"w{n}" for n in range(1, 9)]


async def test_telephone_formats_and_logprobs(service: Running) -> None:
    async with connect(service) as connection:
        session = config(format={"type": "audio/pcmu"})
        session["include"] = ["item.input_audio_transcription.logprobs"]
        await connection.session.update(session=session)
        await send_audio(connection, mulaw_8k(TALK), chunk=160)
        events = await receive_until(connection, f"{TRANSCRIPTION}.completed", 2)
    completed = [e for e in events if e.type == f"{TRANSCRIPTION}.completed"]
    assert [e.transcript for e in completed] == [FIRST, SECOND]
    assert "".join(entry.token for entry in completed[0].logprobs).strip() == FIRST


async def test_the_format_and_the_turns_can_change_within_a_connection(service: Running) -> None:
    async with connect(service) as connection:
        await send_audio(connection, pcm24(TALK[: 16_000 * 5]))
        await receive_until(connection, f"{TRANSCRIPTION}.completed")
        await connection.session.update(
            session=config(format={"type": "audio/pcmu"}, turn_detection=None)
        )
        await receive_until(connection, "session.updated")
        await send_audio(connection, mulaw_8k(TALK[: 16_000 * 4]), chunk=160)
        await connection.session.update(
            session=config(turn_detection={"type": "semantic_vad", "eagerness": "high"})
        )
        # what was not committed is not lost
        events = await receive_until(connection, "session.updated")
        (completed,) = (e for e in events if e.type == f"{TRANSCRIPTION}.completed")
        assert completed.transcript == FIRST
        await send_audio(connection, mulaw_8k(TALK[: 16_000 * 5]), chunk=160)
        events = await receive_until(connection, f"{TRANSCRIPTION}.completed")
    assert events[-1].transcript == FIRST
    # times go on from the audio before: 5 s and 4 s
    assert events[0].audio_start_ms == pytest.approx(9700, abs=200)
    ids = [e.previous_item_id for e in events if e.type == "input_audio_buffer.committed"]
    assert ids == [completed.item_id]


async def test_empty_commits_are_errors_and_change_nothing(service: Running) -> None:
    code = "input_audio_buffer_commit_empty"
    async with connect(service) as connection:
        await connection.recv()
        await connection.send({"type": "input_audio_buffer.commit", "event_id": "mine"})
        error = await connection.recv()
        assert (error.type, error.error.code, error.error.event_id) == ("error", code, "mine")
        # with speech detection: the turn is committed already
        await send_audio(connection, pcm24(TALK[: 16_000 * 5]))
        events = await receive_until(connection, f"{TRANSCRIPTION}.completed")
        assert events[-1].transcript == FIRST
        await connection.input_audio_buffer.commit()
        assert (await connection.recv()).error.code == code
        await connection.session.update(session=config(turn_detection=None))
        await receive_until(connection, "session.updated")
        await send_audio(connection, pcm24(TALK[: 16_000 * 5]))
        await connection.input_audio_buffer.commit()
        await connection.input_audio_buffer.commit()
        events = await receive_until(connection, f"{TRANSCRIPTION}.completed")
        assert [e.error.code for e in events if e.type == "error"] == [code]
        assert events[-1].transcript == FIRST
        await send_audio(connection, pcm24(TALK[: 16_000 * 5]))
        await connection.input_audio_buffer.clear()
        assert (await connection.recv()).type == "input_audio_buffer.cleared"
        await connection.input_audio_buffer.commit()
        assert (await connection.recv()).error.code == code


async def test_cleared_sound_is_not_spoken_of(service: Running) -> None:
    async with connect(service) as connection:
        await connection.recv()
        await send_audio(connection, pcm24(TALK[: 16_000 * 2]))
        await connection.input_audio_buffer.clear()
        await send_audio(connection, pcm24(TALK[16_000 * 3 :]))
        events = await receive_until(connection, f"{TRANSCRIPTION}.completed")
    # the turn that was open is gone; the next one is whole, although its audio came at once
    assert [e.transcript for e in events if e.type == f"{TRANSCRIPTION}.completed"] == ["w8 w9 w10"]
    assert "input_audio_buffer.cleared" in [e.type for e in events]
    assert [e.type for e in events].count("input_audio_buffer.committed") == 1


async def test_a_commit_ends_an_open_turn(service: Running) -> None:
    async with connect(service) as connection:
        await connection.recv()
        await send_audio(connection, pcm24(TALK[: 16_000 * 3 + 1600]))
        await connection.input_audio_buffer.commit()
        events = await receive_until(connection, f"{TRANSCRIPTION}.completed")
    assert events[-1].transcript == FIRST


async def test_a_wav_file_of_another_rate_is_named_and_the_session_goes_on(
    service: Running,
) -> None:
    async with connect(service) as connection:
        await connection.recv()
        await send_audio(connection, silent_wav(16_000), 4096)
        (error,) = await receive_until(connection, "error")
        assert error.error.code == "invalid_audio" and "16000 Hz" in error.error.message
        await send_audio(connection, pcm24(TALK))
        await receive_until(connection, f"{TRANSCRIPTION}.completed", 2)


@pytest.mark.parametrize(
    ("message", "code", "param"),
    [
        ("qwerty", "invalid_json", None),
        ("{", "invalid_json", None),
        ("[]", "invalid_json", None),
        ("null", "invalid_json", None),
        ("[" * 100_000, "invalid_json", None),
        ('{"type": 5}', "unknown_event", "type"),
        ('{"type": "nope"}', "unknown_event", "type"),
        ('{"type": "response.create"}', "unsupported_event", "type"),
        ('{"type": "input_audio_buffer.append"}', "invalid_value", "audio"),
        ('{"type": "input_audio_buffer.append", "audio": "?"}', "invalid_value", "audio"),
        ('{"type": "input_audio_buffer.append", "audio": 5}', "invalid_value", "audio"),
        ('{"type": "session.update"}', "invalid_value", "session"),
        ('{"type": "session.update", "session": {"x": NaN}}', "invalid_json", None),
        (b"\x00\x01", "invalid_json", None),
    ],
)
async def test_wrong_messages_are_answered_and_the_session_goes_on(
    service: Running, message: str | bytes, code: str, param: str | None
) -> None:
    async with websockets.connect(service.ws + "/v1/realtime?intent=transcription") as socket:
        await socket.recv()
        await socket.send(message)
        error = json.loads(await socket.recv())
        assert error["type"] == "error"
        assert (error["error"]["code"], error["error"]["param"]) == (code, param)
        assert error["error"]["type"] == "invalid_request_error" and error["error"]["message"]
        await socket.send('{"type": "input_audio_buffer.clear"}')
        assert json.loads(await socket.recv())["type"] == "input_audio_buffer.cleared"


@pytest.mark.parametrize(
    ("source", "param"),
    [
        ({"format": {"type": "audio/pcm", "rate": 16000}}, "session.audio.input.format.rate"),
        ({"format": {"type": "audio/mp3"}}, "session.audio.input.format.type"),
        ({"format": None}, "session.audio.input.format"),
        ({"transcription": {"model": "gpt-9"}}, "session.audio.input.transcription.model"),
        ({"transcription": {"language": "xx"}}, "session.audio.input.transcription.language"),
        ({"transcription": {"delay": "none"}}, "session.audio.input.transcription.delay"),
        ({"turn_detection": {"type": "server_vad", "threshold": 7}},
         "session.audio.input.turn_detection"),
        ({"turn_detection": {"threshold": True}}, "session.audio.input.turn_detection.threshold"),
        ({"turn_detection": "server_vad"}, "session.audio.input.turn_detection"),
        ({"turn_detection": {"type": "magic"}}, "session.audio.input.turn_detection.type"),
    ],
)  # fmt: skip
async def test_wrong_settings_are_named_and_change_nothing(
    service: Running, source: dict[str, Any], param: str
) -> None:
    async with connect(service) as connection:
        before = await connection.recv()
        await connection.send({"type": "session.update", "session": config(**source)})
        error = await connection.recv()
        assert (error.type, error.error.param) == ("error", param)
        await connection.session.update(session={"type": "transcription"})
        assert (await connection.recv()).session == before.session


async def test_an_update_leaves_other_fields_alone(service: Running) -> None:
    async with connect(service) as connection:
        await connection.recv()
        first = {"model": "whisper-1", "prompt": "Zürich", "language": "de"}
        await connection.session.update(session=config(transcription=first, turn_detection=None))
        await connection.recv()
        await connection.session.update(session=config(transcription={"language": "fr"}))
        source = (await connection.recv()).session.audio.input
        assert source.transcription.prompt == "Zürich" and source.transcription.language == "fr"
        assert source.transcription.model == "whisper-1"
        assert source.turn_detection is None and source.format.type == "audio/pcm"


async def test_a_conversation_session_is_refused(service: Running) -> None:
    async with connect(service, model="gpt-realtime") as connection:
        await connection.recv()
        await connection.session.update(session={"type": "realtime", "instructions": "hello"})
        error = await connection.recv()
        assert (error.type, error.error.param) == ("error", "session.type")
    with pytest.raises(websockets.InvalidStatus) as caught:
        await websockets.connect(service.ws + "/v1/realtime?intent=conversation")
    assert caught.value.response.status_code == 400


async def test_the_beta_dialect(service: Running) -> None:
    async with websockets.connect(
        service.ws + "/v1/realtime?intent=transcription",
        additional_headers={"OpenAI-Beta": "realtime=v1"},
        subprotocols=[websockets.Subprotocol("realtime")],
    ) as socket:
        assert socket.subprotocol == "realtime"
        assert json.loads(await socket.recv())["type"] == "transcription_session.created"
        session = {
            "input_audio_format": "g711_ulaw",
            "input_audio_transcription": {"model": "gpt-4o-transcribe", "language": "en"},
            "turn_detection": {"type": "server_vad", "silence_duration_ms": 400},
        }
        await socket.send(json.dumps({"type": "transcription_session.update", "session": session}))
        updated = json.loads(await socket.recv())
        assert updated["type"] == "transcription_session.updated"
        assert updated["session"]["input_audio_format"] == "g711_ulaw"
        assert updated["session"]["input_audio_transcription"]["language"] == "en"
        data = mulaw_8k(TALK[: 16_000 * 5])
        for at in range(0, len(data), 800):
            audio = base64.b64encode(data[at : at + 800]).decode()
            await socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))
        kinds = []
        async with asyncio.timeout(30):
            while not kinds or not kinds[-1].endswith(".completed"):
                event = json.loads(await socket.recv())
                kinds.append(event["type"])
    assert kinds[:4] == [
        "input_audio_buffer.speech_started",
        "input_audio_buffer.speech_stopped",
        "input_audio_buffer.committed",
        "conversation.item.created",
    ]
    assert event["transcript"] == FIRST


async def test_a_client_that_leaves_frees_its_place(service: Running) -> None:
    async with connect(service) as connection:
        await connection.recv()
        assert service.service.num_sessions == 0  # a client that sends nothing takes nothing
        await send_audio(connection, pcm24(TALK[: 16_000 * 2]))
        async with asyncio.timeout(30):
            while service.service.num_sessions != 1:
                await asyncio.sleep(0.01)
    async with asyncio.timeout(30):
        while service.service.num_sessions:
            await asyncio.sleep(0.01)


async def test_client_secrets_open_the_session_they_are_for() -> None:
    key = "a-key-of-enough-characters"
    settings = ServerConfig(port=0, drain_timeout_s=2.0, api_keys=(key,), calibrate=False)
    async with running(config=settings) as service:
        async with openai.AsyncOpenAI(base_url=service.http + "/v1", api_key=key) as client:
            made = await client.realtime.client_secrets.create(
                expires_after={"anchor": "created_at", "seconds": 60},
                session=config(
                    transcription={"model": "gpt-4o-transcribe", "language": "de"},
                    turn_detection=None,
                ),
            )
        assert made.value.startswith("ek_") and 50 < made.expires_at - time.time() <= 60
        assert made.session.audio.input.transcription.language == "de"
        # as a browser does, which can set no headers
        protocols = ["realtime", "openai-insecure-api-key." + made.value]
        address = service.ws + "/v1/realtime?intent=transcription"
        for _ in range(2):
            async with websockets.connect(
                address, subprotocols=[websockets.Subprotocol(name) for name in protocols]
            ) as socket:
                assert socket.subprotocol == "realtime"
                source = json.loads(await socket.recv())["session"]["audio"]["input"]
                assert source["transcription"]["language"] == "de"
                assert source["turn_detection"] is None
        async with openai.AsyncOpenAI(base_url=service.http + "/v1", api_key=made.value) as page:
            with pytest.raises(openai.PermissionDeniedError):
                await page.realtime.client_secrets.create()
        with pytest.raises(websockets.InvalidStatus) as caught:
            await websockets.connect(
                address,
                subprotocols=[
                    websockets.Subprotocol("realtime"),
                    websockets.Subprotocol("openai-insecure-api-key.ek_forged.forged"),
                ],
            )
        assert caught.value.response.status_code == 401


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"expires_after": {"anchor": "created_at", "seconds": 5}}, "expires_after.seconds"),
        ({"expires_after": {"anchor": "created_at", "seconds": "60"}}, "expires_after.seconds"),
        ({"expires_after": 60}, "expires_after.seconds"),
        ({"expires_after": {"anchor": "now", "seconds": 60}}, "expires_after.anchor"),
        ({"session": []}, "session"),
        ({"session": {"type": "realtime"}}, "session.type"),
    ],
)
async def test_wrong_secrets_are_refused(service: Running, body: Any, param: str) -> None:
    async with httpx.AsyncClient(base_url=service.http) as http:
        answer = await http.post("/v1/realtime/client_secrets", json=body)
        assert answer.status_code == 400 and answer.json()["error"]["param"] == param


async def test_the_beta_way_to_a_secret(service: Running) -> None:
    async with httpx.AsyncClient(base_url=service.http) as http:
        session = {"input_audio_format": "g711_alaw", "turn_detection": None}
        answer = await http.post("/v1/realtime/transcription_sessions", json=session)
    body = answer.json()
    assert body["input_audio_format"] == "g711_alaw"
    assert body["client_secret"]["value"].startswith("ek_")


async def test_the_documented_client(service: Running, tmp_path: Path) -> None:
    path = tmp_path / "talk.wav"
    path.write_bytes(wav(soxr.resample(TALK, 16_000, 24_000), rate=24_000))
    host = f"{service.host}:{service.port}"
    out = await run_python(example_of("openai.md"), host, str(path))
    assert out.splitlines() == [f"file: {FIRST} {SECOND}", f"live: {FIRST} {SECOND}"]


async def test_a_stopping_service_delivers_what_was_said(service: Running) -> None:
    async with connect(service) as connection:
        await send_audio(connection, pcm24(TALK[: 16_000 * 3 + 1600]))
        await receive_until(connection, "input_audio_buffer.speech_started")
        # all that was sent is taken in: an answer comes after it
        await connection.send({"type": "nothing"})
        await receive_until(connection, "error")
        draining = asyncio.create_task(service.service.drain())
        events = await receive_until(connection, f"{TRANSCRIPTION}.completed")
        assert events[-1].transcript == FIRST
        with pytest.raises(websockets.ConnectionClosed) as caught:
            await receive_until(connection, "never")
        assert caught.value.rcvd is not None and caught.value.rcvd.code == 1012
        await draining
