"""`/v1/stream` as its clients see it, over a real socket."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket as stdlib_socket
from typing import Any

import pytest
import websockets
from websockets.asyncio.client import ClientConnection

from engine.api import EngineBusy, InvalidRequest
from streamer.config import ServerConfig
from streamer.transport import server
from tests.support import running_service
from tests.support.audio import babble, pcm16, quiet
from tests.support.engines import CountingEngine
from tests.support.running_service import Running, running
from tests.support.waiting import LIMIT_S, until

Message = dict[str, Any]


@pytest.fixture
def service_config() -> ServerConfig:
    return _config()


def _config(**changes: Any) -> ServerConfig:
    return ServerConfig(port=0, drain_timeout_s=2.0, **changes)


def _connect(service: Running, query: str = "") -> Any:
    return websockets.connect(f"{service.ws}/v1/stream{query}", compression=None)


async def _say(socket: ClientConnection, **message: object) -> None:
    await socket.send(json.dumps(message))


async def _start(socket: ClientConnection, **settings: object) -> None:
    """Start a session that takes everything for speech: detection has tests of its own."""
    await _say(socket, type="start", vad_threshold=0, **settings)


async def _next(socket: ClientConnection) -> Message:
    async with asyncio.timeout(30):
        message: Message = json.loads(await socket.recv())
    return message


async def _rest(socket: ClientConnection) -> list[Message]:
    """Read until the server closes."""
    messages = []
    async with asyncio.timeout(30):
        with contextlib.suppress(websockets.ConnectionClosed):
            while True:
                messages.append(json.loads(await socket.recv()))
    return messages


async def _wait_for(socket: ClientConnection, kind: str) -> Message:
    while (message := await _next(socket))["type"] != kind:
        pass
    return message


def _texts(messages: list[Message]) -> str:
    return " ".join(m["text"].strip() for m in messages if m["type"] == "final" and m["text"])


SENTENCE = pcm16(babble(2.0))
WORDS = "w0 w1 w2 w3"


async def test_end_delivers_every_word_then_done_then_the_close(service: Running) -> None:
    async with _connect(service) as socket:
        await _start(socket)
        await socket.send(SENTENCE)
        await _say(socket, type="end")
        messages = await _rest(socket)
    assert messages[0]["type"] == "ready" and messages[0]["seq"] == 0
    assert _texts(messages) == WORDS
    assert messages[-1]["type"] == "done" and messages[-1]["duration"] == 2.0
    assert socket.close_code == 1000


async def test_numbers_only_grow(service: Running) -> None:
    async with _connect(service) as socket:
        for message in ({"type": "nope"}, {"type": "start"}, {"type": "start"}):
            await _say(socket, **message)
        for _ in range(4):
            await socket.send(SENTENCE[:16_000])
            await asyncio.sleep(0.05)
        await _say(socket, type="end")
        numbers = [message["seq"] for message in await _rest(socket)]
    assert numbers == sorted(set(numbers)) and numbers[0] == 0


async def test_sound_alone_starts_a_session(service: Running) -> None:
    async with _connect(service) as socket:
        await socket.send(SENTENCE)
        await _say(socket, type="end")
        messages = await _rest(socket)
    assert (messages[0]["type"], messages[0]["sample_rate"]) == ("ready", 16_000)
    assert (messages[-1]["type"], messages[-1]["duration"]) == ("done", 2.0)


async def test_query_parameters_start_a_session(service: Running) -> None:
    query = "?encoding=mulaw&sample_rate=8000&channels=2&language=de&words=true&hotwords=a,b"
    async with _connect(service, query) as socket:
        ready = await _next(socket)
    assert (ready["encoding"], ready["sample_rate"], ready["channels"]) == ("mulaw", 8000, 2)
    assert ready["language"] == "de"


@pytest.mark.parametrize("query", ["?encoding=mp3", "?sample_rate=fast", "?channels=3"])
async def test_wrong_query_parameters_are_named(service: Running, query: str) -> None:
    async with _connect(service, query) as socket:
        (error,) = await _rest(socket)
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
    async with _connect(service) as socket:
        if is_started:
            await _start(socket)
            await _next(socket)
        await socket.send(text)
        error = await _next(socket)
        assert (error["type"], error["code"], error["fatal"]) == ("error", code, False)
        if not is_started:
            await _start(socket)
        await socket.send(SENTENCE)
        await _say(socket, type="end")
        assert _texts(await _rest(socket)) == WORDS


async def test_invalid_utf8_closes_with_1007(service: Running) -> None:
    async with _connect(service) as socket:
        await _start(socket)
        await _next(socket)
        await socket.send(b"\xff\xfe", text=True)
        assert await _rest(socket) == []
    assert socket.close_code == 1007


@pytest.mark.parametrize(
    ("field", "value"),
    [("sample_rate", "16000"), ("words", 1), ("language", []), ("channels", True), ("delay", "no")],
)
async def test_a_field_of_the_wrong_type_is_named(
    service: Running, field: str, value: object
) -> None:
    async with _connect(service) as socket:
        await _start(socket, **{field: value})
        error = await _next(socket)
        assert error["field"] == field and "expected" in error["message"]
        # nothing was started; the client may correct itself
        await _start(socket)
        assert (await _next(socket))["type"] == "ready"


@pytest.mark.parametrize("text", ['{"type":"start","channels":"2"}', "x" * 70_000])
async def test_sound_after_a_start_that_failed_opens_no_session_with_defaults(
    service: Running, text: str
) -> None:
    async with _connect(service) as socket:
        await socket.send(text)
        await socket.send(SENTENCE)
        messages = await _rest(socket)
    assert [m["type"] for m in messages] == ["error", "error"]
    assert (messages[1]["code"], messages[1]["fatal"]) == ("not_started", True)
    assert socket.close_code == 1008


async def test_unknown_fields_are_reported_once_and_ignored(service: Running) -> None:
    async with _connect(service) as socket:
        await _start(socket, max_clients=99, language=None)
        assert (await _next(socket))["type"] == "ready"
        error = await _next(socket)
        assert (error["code"], error["field"], error["fatal"]) == (
            "unknown_field",
            "max_clients",
            False,
        )
        for _ in range(3):
            await _say(socket, type="update", prompt="x", max_clients=99)
        await socket.send(SENTENCE)
        await _say(socket, type="end")
        assert not [m for m in await _rest(socket) if m["type"] == "error"]


async def test_what_comes_too_early_or_too_late_is_answered(service: Running) -> None:
    async with _connect(service) as socket:
        await _say(socket, type="finalize")
        assert (await _next(socket))["code"] == "not_started"
        await socket.send(b"")
        assert (await _next(socket))["code"] == "empty_message"
        await _start(socket)
        assert (await _next(socket))["type"] == "ready"
        await _start(socket)
        assert (await _next(socket))["code"] == "already_started"
        await socket.send(SENTENCE + b"\0")
        await _say(socket, type="end")
        await socket.send(SENTENCE)
        messages = await _rest(socket)
    codes = [m["code"] for m in messages if m["type"] == "error"]
    assert codes == ["odd_bytes", "audio_after_end"]
    assert _texts(messages) == WORDS


async def test_end_before_anything_is_done_at_once(service: Running) -> None:
    async with _connect(service) as socket:
        await _say(socket, type="end")
        (done,) = await _rest(socket)
    assert (done["type"], done["duration"], done["segments"]) == ("done", 0, 0)
    assert socket.close_code == 1000


async def test_too_many_errors_close_the_session(service: Running) -> None:
    async with _connect(service) as socket:
        with contextlib.suppress(websockets.ConnectionClosed):
            for _ in range(200):
                await socket.send("x")
        messages = await _rest(socket)
    assert messages[-1]["code"] == "too_many_errors" and len(messages) == 101
    assert socket.close_code == 1008


async def test_an_oversized_message_is_refused_by_name() -> None:
    async with running(config=_config(max_message_bytes=1000)) as service:
        async with _connect(service) as socket:
            await _start(socket)
            await _next(socket)
            await socket.send(bytes(1001))
            (error,) = await _rest(socket)
    assert (error["code"], error["fatal"]) == ("too_big", True)
    assert socket.close_code == 1009


async def test_a_silent_client_is_let_go() -> None:
    async with running(config=_config(start_timeout_s=0.2)) as service:
        async with _connect(service) as socket:
            (error,) = await _rest(socket)
            assert service.service.num_sessions == 0
    assert error["code"] == "start_timeout" and socket.close_code == 1008


async def test_an_idle_session_ends_with_all_its_text() -> None:
    async with running(config=_config(idle_timeout_s=0.3)) as service:
        async with _connect(service) as socket:
            await _start(socket)
            await socket.send(SENTENCE)
            messages = await _rest(socket)
    assert _texts(messages) == WORDS
    assert [m["code"] for m in messages if m["type"] == "error"] == ["idle"]
    assert messages[-1]["type"] == "done"


async def test_finalize_closes_the_open_segment(service: Running) -> None:
    async with _connect(service) as socket:
        await _start(socket, endpointing="manual")
        await socket.send(SENTENCE)
        await _say(socket, type="finalize")
        final = await _wait_for(socket, "final")
        assert final["text"].strip() == WORDS
        await socket.send(SENTENCE)
        await _say(socket, type="end")
        assert _texts(await _rest(socket)) == "w4 w5 w6 w7"


async def test_words_come_where_asked_for(service: Running) -> None:
    async with _connect(service) as socket:
        await _start(socket, words=True)
        await socket.send(SENTENCE)
        await _say(socket, type="end")
        (final,) = [m for m in await _rest(socket) if m["type"] == "final"]
    assert "".join(word["text"] for word in final["words"]).strip() == final["text"].strip()
    assert [word["start"] for word in final["words"]] == [0.0, 0.5, 1.0, 1.5]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
async def test_samples_that_are_no_numbers_are_reported_once(service: Running, bad: float) -> None:
    samples = babble(2.0)
    samples[[3, 20_000]] = bad
    data = samples.astype("<f4").tobytes()
    async with _connect(service) as socket:
        await _start(socket, encoding="pcm_f32le")
        for i in range(0, len(data), 4099):
            await socket.send(data[i : i + 4099])
        await _say(socket, type="end")
        messages = await _rest(socket)
    assert [m["code"] for m in messages if m["type"] == "error"] == ["repaired_audio"]
    assert _texts(messages) == WORDS


async def test_channels_are_transcribed_apart(service: Running) -> None:
    left, right = babble(1.0), quiet(1.0)
    stereo = b"".join(pcm16(left[i : i + 1]) + pcm16(right[i : i + 1]) for i in range(len(left)))
    async with _connect(service) as socket:
        await _start(socket, channels=2)
        await socket.send(stereo)
        await _say(socket, type="end")
        finals = [m for m in await _rest(socket) if m["type"] == "final" and m["text"]]
    assert [(m["channel"], m["text"].strip()) for m in finals] == [(0, "w0 w1")]


@pytest.mark.parametrize("size", [1, 333, 640, 4096, 10**6])
async def test_chunk_sizes_do_not_change_finals(service: Running, size: int) -> None:
    sound = SENTENCE if size > 1 else SENTENCE[:16_000]
    async with _connect(service) as socket:
        await _start(socket)
        for i in range(0, len(sound), size):
            await socket.send(sound[i : i + size])
        await _say(socket, type="end")
        assert _texts(await _rest(socket)) == (WORDS if size > 1 else "w0")


class FailingEngine(CountingEngine):
    """Raises where a stream is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.error: Exception | None = None

    def stream(self, options: Any) -> Any:
        if self.error is not None:
            raise self.error
        return super().stream(options)


@pytest.mark.parametrize(
    ("error", "code", "close_code"),
    [
        (EngineBusy("no room"), "busy", 1013),
        (InvalidRequest("language: expected en, got xx"), "invalid_request", 1008),
        (RuntimeError("secret detail"), "internal", 1011),
    ],
)
async def test_errors_of_the_engine_close_the_socket_with_their_code(
    error: Exception, code: str, close_code: int
) -> None:
    engine = FailingEngine()
    async with running(lambda: engine, _config()) as service:
        engine.error = error
        async with _connect(service) as socket:
            await _start(socket)
            (message,) = await _rest(socket)
        assert (message["code"], message["fatal"]) == (code, True)
        assert socket.close_code == close_code
        assert ("secret" in message["message"]) is False
        assert (message.get("retry_after_s") is not None) is (code == "busy")
        # the next client notices nothing
        engine.error = None
        async with _connect(service) as socket:
            await _start(socket)
            await socket.send(SENTENCE)
            await _say(socket, type="end")
            assert _texts(await _rest(socket)) == WORDS


async def test_a_client_that_vanishes_frees_its_place(service: Running) -> None:
    socket = await _connect(service)
    await _start(socket)
    await socket.send(SENTENCE)
    await _next(socket)
    assert service.service.num_sessions == 1
    socket.transport.abort()
    await socket.wait_closed()
    await until(lambda: not service.service.num_sessions)


async def test_a_full_service_refuses_before_the_handshake() -> None:
    async with running(config=_config(max_sessions=1)) as service:
        async with _connect(service) as socket:
            await _start(socket)
            await _next(socket)
            with pytest.raises(websockets.InvalidStatus) as refused:
                await _connect(service)
            response = refused.value.response
            assert response.status_code == 503
            assert int(response.headers["Retry-After"]) > 0
            assert json.loads(response.body)["error"]["code"] == "busy"
            await _say(socket, type="end")
            await _rest(socket)
        async with _connect(service) as socket:
            await _start(socket)
            assert (await _next(socket))["type"] == "ready"


async def test_a_client_that_does_not_read_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    def listen_small(config: ServerConfig) -> stdlib_socket.socket:
        # small buffers, or the kernels would hold megabytes for a client that does not read
        listener = server.listen(config)
        listener.setsockopt(stdlib_socket.SOL_SOCKET, stdlib_socket.SO_SNDBUF, 4096)
        return listener

    monkeypatch.setattr(running_service, "listen", listen_small)
    async with running(config=_config(send_timeout_s=0.3)) as service:
        line = stdlib_socket.socket()
        line.setsockopt(stdlib_socket.SOL_SOCKET, stdlib_socket.SO_RCVBUF, 4096)
        line.connect((service.host, service.port))
        socket = await websockets.connect(f"{service.ws}/v1/stream", sock=line, compression=None)
        await _start(socket, endpointing="manual")
        await _next(socket)
        socket.transport.pause_reading()
        async with asyncio.timeout(30):
            with contextlib.suppress(websockets.ConnectionClosed):
                while service.service.num_sessions:
                    await socket.send(SENTENCE[:16_000])
                    await _say(socket, type="finalize")
                    await asyncio.sleep(0.01)
            while service.service.num_sessions:
                await asyncio.sleep(0.01)
        socket.transport.abort()
        await socket.wait_closed()


# --- resuming -------------------------------------------------------------------------------------


async def _open_resumable(service: Running) -> tuple[ClientConnection, Message]:
    socket = await _connect(service)
    await _start(socket, resumable=True)
    return socket, await _next(socket)


async def test_a_resumed_session_goes_on_where_the_sound_stopped(service: Running) -> None:
    socket, ready = await _open_resumable(service)
    await socket.send(SENTENCE[:32_001])
    partial = await _wait_for(socket, "partial")
    socket.transport.abort()
    async with _connect(service) as socket:
        await _say(socket, type="resume", session=ready["session"], seq=partial["seq"])
        again = await _next(socket)
        assert again["resumed"] and again["session"] == ready["session"]
        await socket.send(SENTENCE[again["received_bytes"] :])
        await _say(socket, type="end")
        messages = await _rest(socket)
    assert _texts(messages) == WORDS
    assert all(message["seq"] > partial["seq"] for message in messages)


async def test_missed_finals_are_sent_again(service: Running) -> None:
    socket, ready = await _open_resumable(service)
    await socket.send(SENTENCE + pcm16(quiet(1.0)))
    await _wait_for(socket, "final")
    socket.transport.abort()
    async with _connect(service) as socket:
        await _say(socket, type="resume", session=ready["session"], seq=ready["seq"])
        assert (await _next(socket))["resumed"]
        final = await _wait_for(socket, "final")
    assert final["text"].strip() == WORDS


async def test_a_resumed_session_leaves_a_socket_that_still_hangs_on(service: Running) -> None:
    old, ready = await _open_resumable(service)
    async with _connect(service) as socket:
        await _say(socket, type="resume", session=ready["session"], seq=0)
        assert (await _next(socket))["resumed"]
        assert await _rest(old) == [] and old.close_code == 1008
        await socket.send(SENTENCE)
        await _say(socket, type="end")
        assert _texts(await _rest(socket)) == WORDS


async def test_an_unknown_session_may_be_started_anew(service: Running) -> None:
    async with _connect(service) as socket:
        await _say(socket, type="resume", session="never", seq=3)
        error = await _next(socket)
        assert (error["code"], error["fatal"]) == ("unknown_session", False)
        await _start(socket)
        assert (await _next(socket))["type"] == "ready"


async def test_finals_of_a_client_that_stays_away_can_be_fetched() -> None:
    import httpx

    async with running(config=_config(resume_grace_s=0.2)) as service:
        socket, ready = await _open_resumable(service)
        await socket.send(SENTENCE)
        await service.wait_heard(2.0)
        socket.transport.abort()
        async with httpx.AsyncClient(base_url=service.http) as client, asyncio.timeout(30):
            while True:
                response = await client.get(f"/v1/sessions/{ready['session']}")
                if response.status_code == 200 and response.json()["done"]:
                    break
                await asyncio.sleep(0.05)
            assert _texts(response.json()["messages"]) == WORDS
            path = f"/v1/sessions/{ready['session']}"
            for wrong in ("--5", "²", "9" * 5000):  # no number: all of it
                assert (await client.get(path, params={"seq": wrong})).json() == response.json()
            assert service.service.num_sessions == 0
            assert (await client.get("/v1/sessions/other")).status_code == 404


async def test_a_session_without_a_client_gives_its_place_to_another() -> None:
    async with running(config=_config(max_sessions=1)) as service:
        socket, _ = await _open_resumable(service)
        socket.transport.abort()
        async with asyncio.timeout(LIMIT_S):
            while True:  # until the service has noticed
                with contextlib.suppress(websockets.InvalidStatus):
                    socket = await _connect(service)
                    break
        assert service.service.num_sessions == 1
        async with socket:
            await _start(socket)
            assert (await _next(socket))["type"] == "ready"


async def test_a_stop_delivers_all_text_and_asks_to_reconnect() -> None:
    async with running(config=_config()) as service:
        async with _connect(service) as socket:
            await _start(socket)
            await socket.send(SENTENCE)
            await _wait_for(socket, "partial")
            await service.service.drain()
            messages = await _rest(socket)
            assert "reconnect" in [message["type"] for message in messages]
            assert _texts(messages) == WORDS
            assert messages[-1]["type"] == "done" and messages[-1]["duration"] == 2.0
            assert socket.close_code == 1012
            with pytest.raises(websockets.InvalidStatus):
                await _connect(service)
