"""What Realtime answers to events and settings that are wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest
import websockets

from tests.support.audio import silent_wav
from tests.support.realtime import (
    FIRST,
    TALK,
    TRANSCRIPTION,
    config,
    connect,
    pcm24,
    receive_until,
    send_audio,
)
from tests.support.running_service import Running


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
         "session.audio.input.turn_detection.threshold"),
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


@pytest.mark.parametrize(
    "update",
    [
        '{"type": "session.update", "session": {}}x',
        '{"type": "session.update", "model": "whisper-1"',
        '{"type": "session.update", "session": {"audio": {"input": {"format": 5}}}}',
    ],
)
async def test_audio_behind_settings_that_were_not_understood_opens_no_session(
    service: Running, update: str
) -> None:
    append = {"type": "input_audio_buffer.append", "audio": "AAAA"}
    async with websockets.connect(service.ws + "/v1/realtime") as socket:
        await socket.recv()
        await socket.send(update)
        assert json.loads(await socket.recv())["type"] == "error"
        await socket.send(json.dumps(append))
        error = json.loads(await socket.recv())["error"]
        assert (error["code"], error["param"]) == ("not_started", "session")
        with pytest.raises(websockets.ConnectionClosed):
            await socket.recv()
    assert socket.close_code == 1008


async def test_settings_that_are_understood_after_all_open_it(service: Running) -> None:
    append = {"type": "input_audio_buffer.append", "audio": "AAAA"}
    async with websockets.connect(service.ws + "/v1/realtime") as socket:
        await socket.recv()
        await socket.send("x")
        await socket.recv()
        await socket.send(json.dumps({"type": "session.update", "session": {}}))
        assert json.loads(await socket.recv())["type"] == "session.updated"
        await socket.send(json.dumps(append))
        await socket.send('{"type": "input_audio_buffer.clear"}')
        assert json.loads(await socket.recv())["type"] == "input_audio_buffer.cleared"
