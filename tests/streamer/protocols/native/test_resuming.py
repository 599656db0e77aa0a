"""Sessions of `/v1/stream` that outlive their sockets."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
import websockets
from websockets.asyncio.client import ClientConnection

from streamer.config import ServerConfig
from tests.support.audio import pcm16, quiet
from tests.support.running_service import Running, running
from tests.support.stream_socket import (
    SENTENCE,
    WORDS,
    Message,
    config_of,
    connect,
    receive,
    receive_rest,
    receive_until,
    say,
    start,
    texts_of,
)
from tests.support.waiting import LIMIT_S


@pytest.fixture
def service_config() -> ServerConfig:
    return config_of()


async def _open_resumable(service: Running) -> tuple[ClientConnection, Message]:
    socket = await connect(service)
    await start(socket, resumable=True)
    return socket, await receive(socket)


async def test_a_resumed_session_goes_on_where_the_sound_stopped(service: Running) -> None:
    socket, ready = await _open_resumable(service)
    await socket.send(SENTENCE[:32_001])
    partial = await receive_until(socket, "partial")
    socket.transport.abort()
    async with connect(service) as socket:
        await say(socket, type="resume", session=ready["session"], seq=partial["seq"])
        again = await receive(socket)
        assert again["resumed"] and again["session"] == ready["session"]
        await socket.send(SENTENCE[again["received_bytes"] :])
        await say(socket, type="end")
        messages = await receive_rest(socket)
    assert texts_of(messages) == WORDS
    assert all(message["seq"] > partial["seq"] for message in messages)


async def test_missed_finals_are_sent_again(service: Running) -> None:
    socket, ready = await _open_resumable(service)
    await socket.send(SENTENCE + pcm16(quiet(1.0)))
    await receive_until(socket, "final")
    socket.transport.abort()
    async with connect(service) as socket:
        await say(socket, type="resume", session=ready["session"], seq=ready["seq"])
        assert (await receive(socket))["resumed"]
        final = await receive_until(socket, "final")
    assert final["text"].strip() == WORDS


async def test_a_resumed_session_leaves_a_socket_that_still_hangs_on(service: Running) -> None:
    old, ready = await _open_resumable(service)
    async with connect(service) as socket:
        await say(socket, type="resume", session=ready["session"], seq=0)
        assert (await receive(socket))["resumed"]
        assert await receive_rest(old) == [] and old.close_code == 1008
        await socket.send(SENTENCE)
        await say(socket, type="end")
        assert texts_of(await receive_rest(socket)) == WORDS


async def test_an_unknown_session_may_be_started_anew(service: Running) -> None:
    async with connect(service) as socket:
        await say(socket, type="resume", session="never", seq=3)
        error = await receive(socket)
        assert (error["code"], error["fatal"]) == ("unknown_session", False)
        await start(socket)
        assert (await receive(socket))["type"] == "ready"


async def test_finals_of_a_client_that_stays_away_can_be_fetched() -> None:
    import httpx

    async with running(config=config_of(resume_grace_s=0.2)) as service:
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
            assert texts_of(response.json()["messages"]) == WORDS
            path = f"/v1/sessions/{ready['session']}"
            for wrong in ("--5", "²", "9" * 5000):  # no number: all of it
                assert (await client.get(path, params={"seq": wrong})).json() == response.json()
            assert service.service.num_sessions == 0
            assert (await client.get("/v1/sessions/other")).status_code == 404


async def test_a_session_without_a_client_gives_its_place_to_another() -> None:
    async with running(config=config_of(max_sessions=1)) as service:
        socket, _ = await _open_resumable(service)
        socket.transport.abort()
        async with asyncio.timeout(LIMIT_S):
            while True:  # until the service has noticed
                with contextlib.suppress(websockets.InvalidStatus):
                    socket = await connect(service)
                    break
        assert service.service.num_sessions == 1
        async with socket:
            await start(socket)
            assert (await receive(socket))["type"] == "ready"


async def test_a_stop_delivers_all_text_and_asks_to_reconnect() -> None:
    async with running(config=config_of()) as service:
        async with connect(service) as socket:
            await start(socket)
            await socket.send(SENTENCE)
            await receive_until(socket, "partial")
            await service.service.drain()
            messages = await receive_rest(socket)
            assert "reconnect" in [message["type"] for message in messages]
            assert texts_of(messages) == WORDS
            assert messages[-1]["type"] == "done" and messages[-1]["duration"] == 2.0
            assert socket.close_code == 1012
            with pytest.raises(websockets.InvalidStatus):
                await connect(service)
