"""Calls as Twilio sends them, against the running service."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import pytest
import websockets

from streamer.config import ServerConfig
from streamer.protocols.twilio.jitter import ChunkOrder
from tests.support.audio import silent_wav
from tests.support.engines import CELL, CountingEngine
from tests.support.running_service import Running, running
from tests.support.twilio import CONNECTED, FRAMES, OUTBOUND, STOP, media, start
from tests.support.waiting import until, until_closed

SAID = [("inbound", "w0 w1 w2 w3"), ("outbound", "w5 w6 w7 w8")]


async def call(service: Running, frames: list[str], *, opening: str = start()) -> Any:
    async with websockets.connect(f"{service.ws}/v1/twilio") as socket:
        for message in [CONNECTED, opening, *frames]:
            await socket.send(message)
        await asyncio.wait_for(socket.wait_closed(), 30)
    return socket


async def follow(service: Running, name: str = "CA1", query: str = "") -> list[Any]:
    async with websockets.connect(f"{service.ws}/v1/calls/{name}{query}") as socket:
        return [json.loads(message) async for message in socket]


def finals(messages: list[Any]) -> list[tuple[str, str]]:
    return sorted((m["track"], m["text"].strip()) for m in messages if m["type"] == "final")


async def test_both_tracks_are_labelled_channels(service: Running) -> None:
    async with websockets.connect(f"{service.ws}/v1/calls/CA1") as reader:
        received = [json.loads(await reader.recv())]
        socket = await call(service, [*FRAMES, STOP])
        assert socket.close_code == 1000
        received += [json.loads(message) async for message in reader]
    assert finals(received) == SAID
    assert received[0] == {"type": "call", "call": "CA1", "state": "waiting", "first": 0, "next": 0}
    assert received[1]["type"] == "stream_started"
    assert received[1]["tracks"] == ["inbound", "outbound"]
    assert received[-1]["type"] == "done"
    assert received[-1]["duration"] == 6.0
    assert received[-1]["lost_chunks"] == 0
    final = next(m for m in received if m["type"] == "final" and m["track"] == "outbound")
    assert final["words"][0] == {"text": " w5", "start": 2.5, "end": 3.0, "probability": 0.9}
    assert final["channel"] == 1


async def test_who_comes_late_or_twice_reads_the_same(service: Running) -> None:
    await call(service, [*FRAMES, STOP])
    first, second = await follow(service), await follow(service)
    assert finals(first) == SAID
    assert first == second
    assert first[0]["state"] == "ended"
    rest = await follow(service, query="?after=2")
    assert [m["seq"] for m in rest[1:]] == [m["seq"] for m in first[1:] if m["seq"] >= 2]


async def test_a_dropped_call_is_transcribed_to_its_last_word(service: Running) -> None:
    socket = await websockets.connect(f"{service.ws}/v1/twilio")
    cut = len(FRAMES) * 4 // 6  # while the second track is speaking
    for message in [CONNECTED, start(), *FRAMES[:cut]]:
        await socket.send(message)
    # what the client's own buffer holds would not be sent any more
    await until(lambda: socket.transport.get_write_buffer_size() == 0)
    socket.transport.abort()
    received = await asyncio.wait_for(follow(service), 30)
    assert finals(received) == [SAID[0], ("outbound", "w5 w6 w7")]
    assert received[-1]["type"] == "done"


async def test_frames_out_of_order_are_put_in_order(service: Running) -> None:
    rng = random.Random(5)
    order = sorted(range(len(FRAMES)), key=lambda i: i + rng.uniform(0, 16))
    await call(service, [*[FRAMES[i] for i in order], STOP])
    received = await follow(service)
    assert finals(received) == SAID
    assert received[-1]["lost_chunks"] == 0


async def test_lost_frames_leave_the_times_right(service: Running) -> None:
    # the second second of quiet on the outbound track never comes
    lost = [
        frame
        for frame in FRAMES
        if not (
            json.loads(frame)["media"]["track"] == "outbound"
            and 50 <= int(json.loads(frame)["media"]["chunk"]) < 100
        )
    ]
    await call(service, [*lost, STOP])
    received = await follow(service)
    assert finals(received) == SAID
    assert received[-1]["lost_chunks"] == 50
    final = next(m for m in received if m["type"] == "final" and m["track"] == "outbound")
    assert final["words"][0]["start"] == 5 * CELL / 16000


@pytest.mark.parametrize(
    "wrong",
    ["qwerty", "[]", '{"event":"media"}', '{"event":"media","media":{"payload":"***"}}', b"\x00"],
)
async def test_a_wrong_message_costs_no_call(service: Running, wrong: str | bytes) -> None:
    async with websockets.connect(f"{service.ws}/v1/twilio") as socket:
        for message in [wrong, CONNECTED, wrong, start(), wrong, *FRAMES, wrong, STOP]:
            await socket.send(message)
        await asyncio.wait_for(socket.wait_closed(), 30)
    assert finals(await follow(service)) == SAID


async def test_parameters_of_the_stream_are_its_settings(service: Running) -> None:
    opening = start(language="de-DE", hotwords="Wordwire, Tarif")
    await call(service, [*FRAMES, STOP], opening=opening)
    engine: Any = service.service._engine
    asked = engine.options[1:]  # the first one warmed the engine up
    assert {o.language for o in asked} == {"de"}
    assert {o.hotwords for o in asked} == {("Wordwire", "Tarif")}


@pytest.mark.parametrize("parameters", [{"silence_ms": "soon"}, {"task": "sing"}])
async def test_parameters_that_cannot_be_are_said_to_readers(
    service: Running, parameters: dict[str, str]
) -> None:
    socket = await call(service, [*FRAMES[:10], STOP], opening=start(**parameters))
    assert socket.close_code == 1008
    received = await follow(service)
    assert received[-1]["type"] == "error"
    assert "expected" in received[-1]["message"] or "valid" in received[-1]["message"]


async def test_sound_that_contradicts_its_start_is_said_to_readers(service: Running) -> None:
    socket = await call(service, [*media("inbound", silent_wav(16_000)), STOP])
    assert socket.close_code == 1008
    received = await follow(service)
    assert received[-1]["type"] == "error" and "16000 Hz" in received[-1]["message"]


async def test_a_bug_in_taking_a_call_does_not_pass_for_its_end(
    service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, count = ChunkOrder.put, 0

    def break_at_last(order: ChunkOrder, *arguments: Any) -> bytes:
        nonlocal count
        count += 1
        if count > 500:
            raise RuntimeError("a bug, which no client is to read")
        return put(order, *arguments)

    monkeypatch.setattr(ChunkOrder, "put", break_at_last)
    socket = await call(service, [*FRAMES, STOP])
    assert socket.close_code == 1011
    received = await follow(service)
    assert finals(received), "what was said before is transcribed"
    assert received[-1]["type"] == "error" and received[-1]["code"] == "internal"
    assert "bug" not in received[-1]["message"]


async def test_a_message_that_is_too_big_for_a_start_closes_with_its_code() -> None:
    config = ServerConfig(port=0, max_message_bytes=1000, calibrate=False)
    async with running(config=config) as service:
        socket = await call(service, [], opening=start(note="x" * 2000))
    assert socket.close_code == 1009


async def test_calls_do_not_mix(service: Running) -> None:
    other = media("inbound", OUTBOUND)
    await asyncio.gather(
        call(service, [*FRAMES, STOP]), call(service, [*other, STOP], opening=start("CA2"))
    )
    assert finals(await follow(service, "CA1")) == SAID
    assert finals(await follow(service, "CA2")) == [("inbound", "w5 w6 w7 w8")]


async def test_a_reader_that_leaves_frees_its_place_and_an_unknown_call_times_out() -> None:
    async with running(config=ServerConfig(port=0, call_grace_s=0.3)) as service:
        async with websockets.connect(f"{service.ws}/v1/calls/CA9") as socket:
            received = [json.loads(message) async for message in until_closed(socket)]
        assert received[0]["state"] == "waiting"
        assert socket.close_code == 1008
        assert socket.close_reason == "no such call"


async def test_finals_go_to_the_webhook() -> None:
    bodies: list[Any] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.split("content-length:")[1].split("\r\n")[0])
        bodies.append(json.loads(await reader.readexactly(length)))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    hook = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = hook.sockets[0].getsockname()[1]
    config = ServerConfig(port=0, call_webhook=f"http://127.0.0.1:{port}/")
    async with running(config=config) as service:
        await call(service, [*FRAMES, STOP])
    hook.close()
    await hook.wait_closed()
    assert finals(bodies) == SAID
    assert bodies[-1]["type"] == "done"


async def test_a_stream_that_stops_before_it_starts_is_closed(service: Running) -> None:
    async with websockets.connect(f"{service.ws}/v1/twilio") as socket:
        await socket.send(CONNECTED)
        await socket.send(STOP)
        await asyncio.wait_for(socket.wait_closed(), 30)
    assert socket.close_code == 1000


async def test_a_key_may_follow_the_path() -> None:
    key = "a-key-of-enough-characters"
    config = ServerConfig(port=0, api_keys=(key,))
    async with running(config=config) as service:
        for wrong in ("", "/", "/another-key-of-some-length"):
            with pytest.raises(websockets.InvalidStatus) as caught:
                await websockets.connect(f"{service.ws}/v1/twilio{wrong}")
            assert caught.value.response.status_code == 401
        async with websockets.connect(f"{service.ws}/v1/twilio/{key}") as socket:
            for message in [CONNECTED, start(), *FRAMES, STOP]:
                await socket.send(message)
            await asyncio.wait_for(socket.wait_closed(), 30)
        with pytest.raises(websockets.InvalidStatus):
            await follow(service)
        headers = {"Authorization": f"Bearer {key}"}
        url = f"{service.ws}/v1/calls/CA1"
        async with websockets.connect(url, additional_headers=headers) as reader:
            received = [json.loads(message) async for message in reader]
    assert finals(received) == SAID


async def test_a_service_that_stops_delivers_what_was_said() -> None:
    async with running(config=ServerConfig(port=0, drain_timeout_s=5)) as service:
        async with websockets.connect(f"{service.ws}/v1/calls/CA1") as reader:
            await reader.recv()  # it waits for the call
            async with websockets.connect(f"{service.ws}/v1/twilio") as socket:
                for message in [CONNECTED, start(), *FRAMES]:
                    await socket.send(message)
                await service.wait_heard(2 * 6.0)
                await asyncio.wait_for(service.service.drain(), 30)
                await asyncio.wait_for(socket.wait_closed(), 30)
            received = [json.loads(message) async for message in until_closed(reader)]
        assert socket.close_code == 1012
    assert finals(received) == SAID
    assert received[-1]["type"] == "done"


KEYS = ("a-key-for-the-tests-0001", "a-key-for-the-tests-0002")


async def test_a_call_is_read_with_the_key_that_it_came_in_with() -> None:
    config = ServerConfig(port=0, api_keys=KEYS, call_grace_s=3.0, calibrate=False)
    async with running(CountingEngine, config) as service:
        async with websockets.connect(f"{service.ws}/v1/twilio/{KEYS[0]}") as socket:
            for message in [CONNECTED, start(), *FRAMES, STOP]:
                await socket.send(message)
            await asyncio.wait_for(socket.wait_closed(), 30)
        own = await follow(service, query=f"?key={KEYS[0]}")
        assert finals(own) == SAID
        with pytest.raises(websockets.ConnectionClosed) as caught:
            await follow(service, query=f"?key={KEYS[1]}")
        assert caught.value.rcvd is not None and caught.value.rcvd.reason == "no such call"


async def test_payloads_that_are_no_base64_are_counted_for_readers(service: Running) -> None:
    wrong = '{"event":"media","media":{"track":"inbound","payload":"%%"}}'
    await call(service, [wrong, *FRAMES, wrong, STOP])
    done = (await follow(service))[-1]
    assert (done["type"], done["unreadable_chunks"]) == ("done", 2)
