"""Realtime transcription: OpenAI's own SDK, unmodified, and what it would not send."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path

import numpy as np
import pytest
import soxr
import websockets

from tests.support.audio import babble, quiet, wav
from tests.support.documented_example import example_of, run_python
from tests.support.realtime import (
    FIRST,
    SECOND,
    TALK,
    TRANSCRIPTION,
    config,
    connect,
    deltas_of,
    mulaw_8k,
    pcm24,
    receive_until,
    send_audio,
)
from tests.support.running_service import Running


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
