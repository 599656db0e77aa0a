"""Clients that die, stall, or never speak harm nobody but themselves."""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import os
import signal
import socket
import time
from contextlib import AbstractAsyncContextManager
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from streamer.config import ServerConfig
from streamer.transport import server_process as server
from tests.faults.speaker import Heard, listen, send, speak, speech, words_of
from tests.faults.victim import Victim, victim
from tests.support import running_service

NUM_SENTENCES = 3


def serving(**changes: Any) -> AbstractAsyncContextManager[running_service.Running]:
    """Serve in this process, where nothing of the process itself is looked at."""
    config = ServerConfig(port=0, calibrate=False, drain_timeout_s=2.0, **changes)
    return running_service.running(config=config)


def _speak_for_ever(url: str) -> None:
    asyncio.run(speak(url, speech(100)))


async def test_killed_clients_free_their_places_and_others_hear_all() -> None:
    async with victim("--max-sessions=4") as service:
        context = multiprocessing.get_context("spawn")
        doomed = [context.Process(target=_speak_for_ever, args=(service.ws,)) for _ in range(3)]
        for child in doomed:
            child.start()
        await service.wait_open(3, limit_s=90.0)  # each starts an interpreter
        bystander = asyncio.create_task(speak(service.ws, speech(NUM_SENTENCES)))
        await service.wait_open(4)
        with pytest.raises(InvalidStatus) as refused:
            await connect(f"{service.ws}/v1/stream")
        assert refused.value.response.status_code == 503
        assert "Retry-After" in refused.value.response.headers
        for child in doomed:
            assert child.pid is not None
            os.kill(child.pid, signal.SIGKILL)
        async with asyncio.timeout(5):  # the places are free within five seconds
            while (await service.metrics())["wordwire_open_sessions"] > 1:
                await asyncio.sleep(0.05)
        heard = await speak(service.ws, speech(1), pace=4)
        assert heard.words == words_of(1)
        assert (await bystander).words == words_of(NUM_SENTENCES)
        for child in doomed:
            child.join()
        await service.wait_idle()


async def test_what_clients_ask_for_does_not_change_the_limits() -> None:
    async with serving(max_sessions=2) as service:
        async with connect(f"{service.ws}/v1/stream") as greedy:
            await greedy.send(
                json.dumps({"type": "start", "max_clients": 99, "max_connection_time": 9999})
            )
            messages = [json.loads(await greedy.recv()) for _ in range(3)]
            assert {m["type"] for m in messages} == {"ready", "error"}
            async with connect(f"{service.ws}/v1/stream?language=en") as second:
                await second.recv()
                with pytest.raises(InvalidStatus):
                    await connect(f"{service.ws}/v1/stream")


async def test_sockets_that_never_start_are_closed_and_are_no_sessions() -> None:
    async with serving(start_timeout_s=1.0, max_sessions=2) as service:
        silent = [await connect(f"{service.ws}/v1/stream") for _ in range(20)]
        assert service.service.num_sessions == 0
        heard = await speak(service.ws, speech(1), pace=4)
        assert heard.words == words_of(1)
        for each in silent:
            await asyncio.wait_for(each.wait_closed(), 30)
            assert each.close_code == 1008


async def test_connections_that_send_no_request_are_dropped() -> None:
    async with victim("--request-timeout-s=1") as service:
        before = service.num_descriptors
        raw = [socket.create_connection(("127.0.0.1", service.port)) for _ in range(50)]
        for index, each in enumerate(raw):
            if index % 2:
                each.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        for each in raw:
            assert await asyncio.to_thread(_is_dropped, each)
            each.close()
        async with asyncio.timeout(30):
            while service.num_descriptors > before + 2:
                await asyncio.sleep(0.1)


async def test_connections_beyond_the_limit_are_told_so() -> None:
    async with victim("--max-connections=10") as service:
        raw = [socket.create_connection(("127.0.0.1", service.port)) for _ in range(10)]
        # the last of those who asked whether it is ready may still be leaving
        answers = []
        for _ in range(3):
            late = socket.create_connection(("127.0.0.1", service.port))
            raw.append(late)
            late.settimeout(2)
            with contextlib.suppress(TimeoutError):
                answers.append(await asyncio.to_thread(late.recv, 1000))
        assert answers and answers[-1].startswith(b"HTTP/1.1 503")
        for each in raw:
            each.close()
        async with asyncio.timeout(30):
            while not await service.is_ready():
                await asyncio.sleep(0.05)


async def test_a_client_that_does_not_read_is_dropped_and_others_hear_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def listen_narrowly(config: ServerConfig) -> socket.socket:
        listener = server.listen(config)
        # accepted sockets inherit it: an hour's text has to be more than all buffers on the way
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        return listener

    monkeypatch.setattr(running_service, "listen", listen_narrowly)
    config = ServerConfig(port=0, send_timeout_s=1.0, calibrate=False, drain_timeout_s=2.0)
    async with running_service.running(config=config) as service:
        bystander = asyncio.create_task(speak(service.ws, speech(NUM_SENTENCES)))
        sleeper = await asyncio.to_thread(_handshake, service.port)
        sleeper.sendall(_frame(b'{"type":"start","language":"en","words":true,"vad_threshold":0}'))
        minute = _frame(speech(20), binary=True)
        sending = asyncio.create_task(
            asyncio.to_thread(_send_until_blocked, sleeper, minute * 60, 30.0)
        )
        async with asyncio.timeout(90):
            while b'code="1008",side="server"' not in service.service.metrics.render():
                await asyncio.sleep(0.05)
        sleeper.close()
        await sending
        assert (await bystander).words == words_of(NUM_SENTENCES)


async def test_pings_whose_answers_are_not_read_are_not_answered_for_ever() -> None:
    async with victim() as service:
        before = service.resident_bytes
        flood = _handshake(service.port)
        ping = bytes([0x89, 0x80 | 125]) + bytes(4 + 125)
        sent = await asyncio.to_thread(_send_until_blocked, flood, ping * 400_000, 5.0)
        assert sent < 40 * 2**20 and service.resident_bytes - before < 20 * 2**20
        async with asyncio.timeout(30):
            while (await service.metrics())["wordwire_open_sockets"]:
                await asyncio.sleep(0.05)
        flood.close()


async def test_a_fast_sender_is_slowed_down_and_not_buffered() -> None:
    async with victim("--cost-s=0.2", "--width=1", "--no-calibrate") as service:
        before = service.resident_bytes
        sender = _handshake(service.port)
        sender.sendall(_frame(b'{"type":"start","language":"en"}'))
        half_minute = _frame(speech(10), binary=True)  # 960 kB
        sent = await asyncio.to_thread(_send_until_blocked, sender, half_minute * 120, 4.0)
        grown = service.resident_bytes - before
        # an hour was offered: not much more was taken than the 45 s that may wait, and the buffers
        assert sent < 20 * 2**20, sent
        assert grown < 40 * 2**20, grown
        sender.close()
        await service.wait_idle()


async def test_a_half_open_client_is_found_out() -> None:
    """Its machine lost power: nothing comes any more, and nothing is acknowledged."""
    async with serving(idle_timeout_s=2.0) as service:
        heard = Heard()
        async with connect(f"{service.ws}/v1/stream?language=en") as quiet_client:
            listening = asyncio.create_task(listen(quiet_client, heard))
            await send(quiet_client, speech(1), pace=8, ends=False)
            await asyncio.wait_for(listening, 30)
        # what was said before is text, then the session ends
        assert heard.words == words_of(1)
        assert heard.kinds("error")[-1]["code"] == "idle"
        assert service.service.num_sessions == 0


async def test_two_hundred_connects_in_a_second_are_served() -> None:
    async with victim("--max-sessions=300", "--no-calibrate") as service:

        async def come_and_go() -> int:
            async with connect(f"{service.ws}/v1/stream?language=en", open_timeout=60) as client:
                assert json.loads(await client.recv())["type"] == "ready"
            return 1

        start = time.monotonic()
        tasks = []
        for index in range(200):
            tasks.append(asyncio.create_task(come_and_go()))
            await asyncio.sleep(max(0.0, start + index / 200 - time.monotonic()))
        assert sum(await asyncio.gather(*tasks)) == 200
        assert (await service.metrics())["wordwire_sessions_total"] == 200
        await service.wait_idle()
        assert not service.tracebacks


async def test_probes_answer_while_a_big_file_is_uploaded() -> None:
    async with victim("--cost-s=0.02") as service:
        head = b"RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0\1\0\1\0\x80>\0\0\0}\0\0\2\0\x10\0"
        piece, delays = speech(100), list[float]()
        # a machine that stands still does so in one round; a handler that blocks, in each
        for _ in range(3):
            delays = await _probe_during_upload(service, head + b"data\xff\xff\xff\xff", piece)
            # below 0.1 s where the machine is ours; a handler that blocks would cost seconds
            if delays[int(0.99 * (len(delays) - 1))] < 0.3:
                return
        raise AssertionError(delays[-5:])


async def _probe_during_upload(service: Victim, head: bytes, piece: bytes) -> list[float]:
    """Upload an hour while somebody speaks; return how long probes took meanwhile, sorted."""
    done, delays = asyncio.Event(), list[float]()

    async def upload() -> int:
        async def body():  # type: ignore[no-untyped-def]
            mark = b"--b\r\nContent-Disposition: form-data; name="
            yield mark + b'"model"\r\n\r\nwhisper-1\r\n' + mark
            yield b'"file"; filename="a.wav"\r\n\r\n' + head
            for _ in range(12):  # 115 MB, an hour
                yield piece
            yield b"\r\n--b--\r\n"

        async with httpx.AsyncClient(timeout=60) as client:
            answer = await client.post(
                f"{service.http}/v1/audio/transcriptions",
                content=body(),
                headers={"Content-Type": "multipart/form-data; boundary=b"},
            )
        done.set()
        return answer.status_code

    async def probe() -> None:
        async with httpx.AsyncClient(timeout=30) as client:
            while not done.is_set():
                start = time.monotonic()
                assert (await client.get(f"{service.http}/healthz")).status_code == 200
                delays.append(time.monotonic() - start)
                await asyncio.sleep(0.1)

    uploading, probing = asyncio.create_task(upload()), asyncio.create_task(probe())
    heard = await speak(service.ws, speech(2))
    assert heard.words == words_of(2)
    uploading.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        assert await uploading == 200
    done.set()
    await probing
    return sorted(delays)


def _is_dropped(raw: socket.socket) -> bool:
    """Wait until the other side closes or breaks a connection."""
    raw.settimeout(30)
    try:
        return raw.recv(1000) == b""
    except ConnectionError:
        return True


def _handshake(port: int) -> socket.socket:
    """Open a WebSocket by hand, with small buffers, and read only the answer."""
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    raw.connect(("127.0.0.1", port))
    raw.sendall(
        b"GET /v1/stream HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    assert b"101" in raw.recv(4096)
    return raw


def _frame(data: bytes, *, binary: bool = False) -> bytes:
    """Write a client's frame; the mask of zeros leaves the data as it is."""
    head = bytes([0x82 if binary else 0x81])
    if len(data) < 126:
        head += bytes([0x80 | len(data)])
    elif len(data) < 65_536:
        head += bytes([0xFE]) + len(data).to_bytes(2, "big")
    else:
        head += bytes([0xFF]) + len(data).to_bytes(8, "big")
    return head + bytes(4) + data


def _send_until_blocked(raw: socket.socket, data: bytes, limit_s: float = 2.0) -> int:
    """Send until nothing is taken for a second, all is sent, or the time is over."""
    raw.settimeout(1.0)
    view, end = memoryview(data), time.monotonic() + limit_s
    with contextlib.suppress(OSError):
        while view and time.monotonic() < end:
            view = view[raw.send(view[:65_536]) :]
    return len(data) - len(view)
