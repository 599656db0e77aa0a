"""`/v1/stream` as its clients see it, over a real socket."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket as stdlib_socket
from typing import Any

import pytest
import websockets

from engine.api import EngineBusy, InvalidRequest
from streamer.config import ServerConfig
from streamer.transport import server_process as server
from tests.support import running_service
from tests.support.audio import babble, pcm16, quiet
from tests.support.engines import CountingEngine
from tests.support.running_service import Running, running
from tests.support.stream_socket import (
    SENTENCE,
    WORDS,
    config_of,
    connect,
    receive,
    receive_rest,
    receive_until,
    say,
    start,
    texts_of,
)
from tests.support.waiting import until


@pytest.fixture
def service_config() -> ServerConfig:
    return config_of()


async def test_end_delivers_every_word_then_done_then_the_close(service: Running) -> None:
    async with connect(service) as socket:
        await start(socket)
        await socket.send(SENTENCE)
        await say(socket, type="end")
        messages = await receive_rest(socket)
    assert messages[0]["type"] == "ready" and messages[0]["seq"] == 0
    assert texts_of(messages) == WORDS
    assert messages[-1]["type"] == "done" and messages[-1]["duration"] == 2.0
    assert socket.close_code == 1000


async def test_numbers_only_grow(service: Running) -> None:
    async with connect(service) as socket:
        for message in ({"type": "nope"}, {"type": "start"}, {"type": "start"}):
            await say(socket, **message)
        for _ in range(4):
            await socket.send(SENTENCE[:16_000])
            await asyncio.sleep(0.05)
        await say(socket, type="end")
        numbers = [message["seq"] for message in await receive_rest(socket)]
    assert numbers == sorted(set(numbers)) and numbers[0] == 0


async def test_sound_alone_starts_a_session(service: Running) -> None:
    async with connect(service) as socket:
        await socket.send(SENTENCE)
        await say(socket, type="end")
        messages = await receive_rest(socket)
    assert (messages[0]["type"], messages[0]["sample_rate"]) == ("ready", 16_000)
    assert (messages[-1]["type"], messages[-1]["duration"]) == ("done", 2.0)


async def test_query_parameters_start_a_session(service: Running) -> None:
    query = "?encoding=mulaw&sample_rate=8000&channels=2&language=de&words=true&hotwords=a,b"
    async with connect(service, query) as socket:
        ready = await receive(socket)
    assert (ready["encoding"], ready["sample_rate"], ready["channels"]) == ("mulaw", 8000, 2)
    assert ready["language"] == "de"


async def test_an_idle_session_ends_with_all_its_text() -> None:
    async with running(config=config_of(idle_timeout_s=0.3)) as service:
        async with connect(service) as socket:
            await start(socket)
            await socket.send(SENTENCE)
            messages = await receive_rest(socket)
    assert texts_of(messages) == WORDS
    assert [m["code"] for m in messages if m["type"] == "error"] == ["idle"]
    assert messages[-1]["type"] == "done"


async def test_finalize_closes_the_open_segment(service: Running) -> None:
    async with connect(service) as socket:
        await start(socket, endpointing="manual")
        await socket.send(SENTENCE)
        await say(socket, type="finalize")
        final = await receive_until(socket, "final")
        assert final["text"].strip() == WORDS
        await socket.send(SENTENCE)
        await say(socket, type="end")
        assert texts_of(await receive_rest(socket)) == "w4 w5 w6 w7"


async def test_words_come_where_asked_for(service: Running) -> None:
    async with connect(service) as socket:
        await start(socket, words=True)
        await socket.send(SENTENCE)
        await say(socket, type="end")
        (final,) = [m for m in await receive_rest(socket) if m["type"] == "final"]
    assert "".join(word["text"] for word in final["words"]).strip() == final["text"].strip()
    assert [word["start"] for word in final["words"]] == [0.0, 0.5, 1.0, 1.5]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
async def test_samples_that_are_no_numbers_are_reported_once(service: Running, bad: float) -> None:
    samples = babble(2.0)
    samples[[3, 20_000]] = bad
    data = samples.astype("<f4").tobytes()
    async with connect(service) as socket:
        await start(socket, encoding="pcm_f32le")
        for i in range(0, len(data), 4099):
            await socket.send(data[i : i + 4099])
        await say(socket, type="end")
        messages = await receive_rest(socket)
    assert [m["code"] for m in messages if m["type"] == "error"] == ["repaired_audio"]
    assert texts_of(messages) == WORDS


async def test_channels_are_transcribed_apart(service: Running) -> None:
    left, right = babble(1.0), quiet(1.0)
    stereo = b"".join(pcm16(left[i : i + 1]) + pcm16(right[i : i + 1]) for i in range(len(left)))
    async with connect(service) as socket:
        await start(socket, channels=2)
        await socket.send(stereo)
        await say(socket, type="end")
        finals = [m for m in await receive_rest(socket) if m["type"] == "final" and m["text"]]
    assert [(m["channel"], m["text"].strip()) for m in finals] == [(0, "w0 w1")]


@pytest.mark.parametrize("size", [1, 333, 640, 4096, 10**6])
async def test_chunk_sizes_do_not_change_finals(service: Running, size: int) -> None:
    sound = SENTENCE if size > 1 else SENTENCE[:16_000]
    async with connect(service) as socket:
        await start(socket)
        for i in range(0, len(sound), size):
            await socket.send(sound[i : i + size])
        await say(socket, type="end")
        assert texts_of(await receive_rest(socket)) == (WORDS if size > 1 else "w0")


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
    async with running(lambda: engine, config_of()) as service:
        engine.error = error
        async with connect(service) as socket:
            await start(socket)
            (message,) = await receive_rest(socket)
        assert (message["code"], message["fatal"]) == (code, True)
        assert socket.close_code == close_code
        assert ("secret" in message["message"]) is False
        assert (message.get("retry_after_s") is not None) is (code == "busy")
        # the next client notices nothing
        engine.error = None
        async with connect(service) as socket:
            await start(socket)
            await socket.send(SENTENCE)
            await say(socket, type="end")
            assert texts_of(await receive_rest(socket)) == WORDS


async def test_a_client_that_vanishes_frees_its_place(service: Running) -> None:
    socket = await connect(service)
    await start(socket)
    await socket.send(SENTENCE)
    await receive(socket)
    assert service.service.num_sessions == 1
    socket.transport.abort()
    await socket.wait_closed()
    await until(lambda: not service.service.num_sessions)


async def test_a_full_service_refuses_before_the_handshake() -> None:
    async with running(config=config_of(max_sessions=1)) as service:
        async with connect(service) as socket:
            await start(socket)
            await receive(socket)
            with pytest.raises(websockets.InvalidStatus) as refused:
                await connect(service)
            response = refused.value.response
            assert response.status_code == 503
            assert int(response.headers["Retry-After"]) > 0
            assert json.loads(response.body)["error"]["code"] == "busy"
            await say(socket, type="end")
            await receive_rest(socket)
        async with connect(service) as socket:
            await start(socket)
            assert (await receive(socket))["type"] == "ready"


async def test_a_client_that_does_not_read_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    def listen_small(config: ServerConfig) -> stdlib_socket.socket:
        # small buffers, or the kernels would hold megabytes for a client that does not read
        listener = server.listen(config)
        listener.setsockopt(stdlib_socket.SOL_SOCKET, stdlib_socket.SO_SNDBUF, 4096)
        return listener

    monkeypatch.setattr(running_service, "listen", listen_small)
    async with running(config=config_of(send_timeout_s=0.3)) as service:
        line = stdlib_socket.socket()
        line.setsockopt(stdlib_socket.SOL_SOCKET, stdlib_socket.SO_RCVBUF, 4096)
        line.connect((service.host, service.port))
        socket = await websockets.connect(f"{service.ws}/v1/stream", sock=line, compression=None)
        await start(socket, endpointing="manual")
        await receive(socket)
        socket.transport.pause_reading()
        async with asyncio.timeout(30):
            with contextlib.suppress(websockets.ConnectionClosed):
                while service.service.num_sessions:
                    await socket.send(SENTENCE[:16_000])
                    await say(socket, type="finalize")
                    await asyncio.sleep(0.01)
            while service.service.num_sessions:
                await asyncio.sleep(0.01)
        socket.transport.abort()
        await socket.wait_closed()
