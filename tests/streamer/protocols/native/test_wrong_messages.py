"""What `/v1/stream` answers to messages that are wrong, late, too many or missing."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
import websockets

from streamer.config import ServerConfig
from tests.support.engines import CountingEngine
from tests.support.running_service import Running, running
from tests.support.stream_socket import (
    SENTENCE,
    WORDS,
    config_of,
    connect,
    receive,
    receive_rest,
    say,
    start,
    texts_of,
)
from tests.support.waiting import LIMIT_S


@pytest.fixture
def service_config() -> ServerConfig:
    return config_of()


@pytest.mark.parametrize("query", ["?encoding=mp3", "?sample_rate=fast", "?channels=3"])
async def test_wrong_query_parameters_are_named(service: Running, query: str) -> None:
    async with connect(service, query) as socket:
        (error,) = await receive_rest(socket)
    assert error["fatal"] and query[1:].partition("=")[0] in error["message"]
    assert socket.close_code == 1008


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("qwerty", "invalid_json"),
        ("{", "invalid_json"),
        ("[]", "invalid_json"),
        ("null", "invalid_json"),
        ('"x"', "invalid_json"),
        ("[" * 100 + "]" * 100, "invalid_json"),
        ("[" * 50_000, "invalid_json"),
        ('{"type":"update","prompt":NaN}', "invalid_json"),
        ('{"type":"end","type":"end"}', "invalid_json"),
        ('{"type":5}', "unknown_type"),
        ('{"type":"nope"}', "unknown_type"),
        ("{}", "unknown_type"),
        ('"' + "x" * 2**20 + '"', "too_long"),
        ('{"type":"update","hotwords":"one"}', "invalid_field"),
    ],
    ids=lambda value: str(value)[:24],
)
@pytest.mark.parametrize("is_started", [False, True])
async def test_a_wrong_message_leaves_the_session_as_it_was(
    service: Running, text: str, code: str, is_started: bool
) -> None:
    async with connect(service) as socket:
        if is_started:
            await start(socket)
            await receive(socket)
        await socket.send(text)
        error = await receive(socket)
        assert (error["type"], error["code"], error["fatal"]) == ("error", code, False)
        if not is_started:
            await start(socket)
        await socket.send(SENTENCE)
        await say(socket, type="end")
        assert texts_of(await receive_rest(socket)) == WORDS


async def test_invalid_utf8_closes_with_1007(service: Running) -> None:
    async with connect(service) as socket:
        await start(socket)
        await receive(socket)
        await socket.send(b"\xff\xfe", text=True)
        assert await receive_rest(socket) == []
    assert socket.close_code == 1007


@pytest.mark.parametrize(
    ("field", "value"),
    [("sample_rate", "16000"), ("words", 1), ("language", []), ("channels", True), ("delay", "no")],
)
async def test_a_field_of_the_wrong_type_is_named(
    service: Running, field: str, value: object
) -> None:
    async with connect(service) as socket:
        await start(socket, **{field: value})
        error = await receive(socket)
        assert error["field"] == field and "expected" in error["message"]
        # nothing was started; the client may correct itself
        await start(socket)
        assert (await receive(socket))["type"] == "ready"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("silence_ms", 5),
        ("pre_roll_ms", -1),
        ("max_segment_s", 1),
        ("vad_threshold", 1.5),
        ("sample_rate", 7),
        ("channels", 3),
        ("language", "xx"),
    ],
)
async def test_a_value_out_of_its_range_is_named(
    service: Running, field: str, value: object
) -> None:
    async with connect(service) as socket:
        await say(socket, **{"type": "start", field: value})
        error = await receive(socket)
        assert (error["fatal"], error["field"]) == (True, field) and field in error["message"]


async def test_an_update_to_an_unknown_language_changes_nothing(service: Running) -> None:
    async with connect(service) as socket:
        await start(socket)
        await receive(socket)
        await say(socket, type="update", language="xx")
        error = await receive(socket)
        assert (error["fatal"], error["field"]) == (False, "language")
        await socket.send(SENTENCE)
        await say(socket, type="end")
        assert texts_of(await receive_rest(socket)) == WORDS


@pytest.mark.parametrize("language", ["de-DE", "german", "DE"])
async def test_a_language_may_be_a_tag_or_a_name(service: Running, language: str) -> None:
    async with connect(service) as socket:
        await start(socket, language=language)
        assert (await receive(socket))["language"] == "de"


@pytest.mark.parametrize(
    "text",
    [
        '{"type":"start","channels":"2"}',
        "x" * 70_000,
        '{"type":"start","sample_rate":8000}x',
        '{"type":"start","sample_rate":8000}\0',
        '{"type":"starts","sample_rate":8000}',
    ],
)
async def test_sound_after_a_start_that_failed_opens_no_session_with_defaults(
    service: Running, text: str
) -> None:
    async with connect(service) as socket:
        await socket.send(text)
        await socket.send(SENTENCE)
        messages = await receive_rest(socket)
    assert [m["type"] for m in messages] == ["error", "error"]
    assert (messages[1]["code"], messages[1]["fatal"]) == ("not_started", True)
    assert socket.close_code == 1008


async def test_unknown_fields_are_reported_once_and_ignored(service: Running) -> None:
    async with connect(service) as socket:
        await start(socket, max_clients=99, language=None)
        assert (await receive(socket))["type"] == "ready"
        error = await receive(socket)
        assert (error["code"], error["field"], error["fatal"]) == (
            "unknown_field",
            "max_clients",
            False,
        )
        for _ in range(3):
            await say(socket, type="update", prompt="x", max_clients=99)
        await socket.send(SENTENCE)
        await say(socket, type="end")
        assert not [m for m in await receive_rest(socket) if m["type"] == "error"]


async def test_what_comes_too_early_or_too_late_is_answered(service: Running) -> None:
    async with connect(service) as socket:
        await say(socket, type="finalize")
        assert (await receive(socket))["code"] == "not_started"
        await socket.send(b"")
        assert (await receive(socket))["code"] == "empty_message"
        await start(socket)
        assert (await receive(socket))["type"] == "ready"
        await start(socket)
        assert (await receive(socket))["code"] == "already_started"
        await socket.send(SENTENCE + b"\0")
        await say(socket, type="end")
        await socket.send(SENTENCE)
        messages = await receive_rest(socket)
    codes = [m["code"] for m in messages if m["type"] == "error"]
    assert codes == ["odd_bytes", "audio_after_end"]
    assert texts_of(messages) == WORDS


async def test_end_before_anything_is_done_at_once(service: Running) -> None:
    async with connect(service) as socket:
        await say(socket, type="end")
        (done,) = await receive_rest(socket)
    assert (done["type"], done["duration"], done["segments"]) == ("done", 0, 0)
    assert socket.close_code == 1000


async def test_too_many_errors_close_the_session(service: Running) -> None:
    async with connect(service) as socket:
        with contextlib.suppress(websockets.ConnectionClosed):
            for _ in range(200):
                await socket.send("x")
        messages = await receive_rest(socket)
    assert messages[-1]["code"] == "too_many_errors" and len(messages) == 101
    assert socket.close_code == 1008


async def test_an_oversized_message_is_refused_by_name() -> None:
    async with running(config=config_of(max_message_bytes=1000)) as service:
        async with connect(service) as socket:
            await start(socket)
            await receive(socket)
            await socket.send(bytes(1001))
            (error,) = await receive_rest(socket)
    assert (error["code"], error["fatal"]) == ("too_big", True)
    assert socket.close_code == 1009


async def test_a_silent_client_is_let_go() -> None:
    async with running(config=config_of(start_timeout_s=0.2)) as service:
        async with connect(service) as socket:
            (error,) = await receive_rest(socket)
            assert service.service.num_sessions == 0
    assert error["code"] == "start_timeout" and socket.close_code == 1008


async def test_messages_that_start_nothing_do_not_extend_the_time_to_start() -> None:
    async with (
        asyncio.timeout(LIMIT_S),
        running(config=config_of(start_timeout_s=0.5)) as service,
        connect(service) as socket,
    ):
        errors = []
        with contextlib.suppress(websockets.ConnectionClosed):
            while True:
                await socket.send(b"")
                errors.append((await receive(socket))["code"])
                await asyncio.sleep(0.1)
        errors += [message["code"] for message in await receive_rest(socket)]
    assert errors[-1] == "start_timeout" and socket.close_code == 1008


@pytest.mark.parametrize(("open_timeout_s", "start_timeout_s"), [(0.3, 60.0), (1.0, 0.3)])
async def test_an_engine_that_hangs_is_busy_to_newcomers(
    monkeypatch: pytest.MonkeyPatch, open_timeout_s: float, start_timeout_s: float
) -> None:
    monkeypatch.setattr("streamer.session.live.OPEN_TIMEOUT_S", open_timeout_s)
    engine = CountingEngine()
    config = config_of(start_timeout_s=start_timeout_s)
    async with running(lambda: engine, config) as service, connect(service) as socket:
        engine.is_hung = True
        await start(socket)
        await socket.send(SENTENCE)
        (error,) = await receive_rest(socket)
        assert service.service.num_sessions == 0
        engine.is_hung = False
    assert (error["code"], error["fatal"]) == ("busy", True)
    assert error["retry_after_s"] > 0 and socket.close_code == 1013


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("is_binary", [False, True])
async def test_a_control_message_may_be_binary_or_have_a_byte_order_mark(
    service: Running, mark: str, is_binary: bool
) -> None:
    async with connect(service) as socket:
        for text in ('{"type":"start","vad_threshold":0}', SENTENCE, '{"type":"end"}\n'):
            if isinstance(text, str):
                await socket.send((mark + text).encode() if is_binary else mark + text)
            else:
                await socket.send(text)
        messages = await receive_rest(socket)
    assert texts_of(messages) == WORDS and messages[-1]["type"] == "done"
