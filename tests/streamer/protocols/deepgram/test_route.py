"""Deepgram's own SDK, unmodified, against the running service."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import numpy as np
import pytest
import websockets

from streamer.config import ServerConfig
from streamer.protocols.deepgram import route
from tests.support.audio import babble, pcm16, quiet
from tests.support.deepgram_sdk import client_of, environment_of, finals, kinds, listen, text
from tests.support.running_service import Running, running
from tests.support.waiting import until, until_closed

deepgram = pytest.importorskip("deepgram")
from deepgram.core.api_error import ApiError  # noqa: E402
from deepgram.core.events import EventType  # noqa: E402

# the SDK asks for a module of websockets that says it is deprecated
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

TALK = np.concatenate([quiet(1.0), babble(2.0), quiet(2.0), babble(1.5, seed=2), quiet(2.0)])


async def test_the_sdk_gets_texts_times_and_the_summary(service: Running) -> None:
    received = await listen(service, pcm16(TALK), interim_results=True, vad_events=True)
    assert text(received) == "w2 w3 w4 w5 w10 w11 w12"
    assert kinds(received)[-1] == "Metadata"
    assert received[-1].duration == pytest.approx(8.5)
    assert received[-1].channels == 1
    starts = [m.timestamp for m in received if m.type == "SpeechStarted"]
    assert starts == pytest.approx([1.0, 5.0], abs=0.5)
    position = 0.0
    for result in finals(received):
        assert result.start == pytest.approx(position)
        position = result.start + result.duration
    assert position == pytest.approx(8.5)
    words = [w for m in finals(received) for w in m.channel.alternatives[0].words]
    assert [(w.word, w.start, w.end) for w in words][:2] == [("w2", 1.0, 1.5), ("w3", 1.5, 2.0)]
    spoken = [m for m in finals(received) if m.channel.alternatives[0].transcript]
    assert [m.speech_final for m in spoken] == [True, True]


async def test_interims_come_before_their_final_and_only_when_asked(service: Running) -> None:
    received = await listen(service, pcm16(TALK), pace_s=0.02, interim_results=True)
    results = [m for m in received if m.type == "Results"]
    interims = [m for m in results if not m.is_final]
    assert interims
    for interim in interims:
        following = next(m for m in results[results.index(interim) :] if m.is_final)
        assert interim.start == following.start
        assert interim.channel.alternatives[0].transcript
        assert interim.channel.alternatives[0].confidence > 0
    plain = await listen(service, pcm16(TALK), pace_s=0.02)
    assert all(m.is_final for m in plain if m.type == "Results")
    assert "SpeechStarted" not in kinds(plain)


async def test_utterance_end_after_the_gap(service: Running) -> None:
    received = await listen(
        service, pcm16(TALK), pace_s=0.01, interim_results=True, utterance_end_ms="1000"
    )
    ends = [m.last_word_end for m in received if m.type == "UtteranceEnd"]
    assert ends == [3.0, 6.5]


@pytest.mark.parametrize("chunk", [1, 333, 640, 4096, 10**7])
async def test_the_size_of_messages_changes_nothing(service: Running, chunk: int) -> None:
    # one byte a message is slow work: a second of it will do
    sound, expected = (babble(1.0), "w0 w1") if chunk == 1 else (TALK, "w2 w3 w4 w5 w10 w11 w12")
    assert text(await listen(service, pcm16(sound), chunk=chunk)) == expected


async def test_channels_stay_apart_with_multichannel(service: Running) -> None:
    left = np.concatenate([babble(2.0), quiet(3.0)])
    right = np.concatenate([quiet(2.5), babble(2.0), quiet(0.5)])
    audio = pcm16(np.stack([left, right], axis=1).reshape(-1))
    received = await listen(service, audio, channels=2, multichannel=True)
    assert text(received, 0) == "w0 w1 w2 w3"
    assert text(received, 1) == "w5 w6 w7 w8"
    assert {tuple(m.channel_index) for m in received if m.type == "Results"} == {(0, 2), (1, 2)}
    assert received[-1].channels == 2


@pytest.mark.parametrize("sign", [0.0, 1.0, -1.0])
async def test_channels_are_mixed_without_multichannel(service: Running, sign: float) -> None:
    mono = np.concatenate([quiet(0.5), babble(2.0), quiet(1.0)])
    audio = pcm16(np.stack([sign * mono, mono], axis=1).reshape(-1))
    received = await listen(service, audio, channels=2)
    assert text(received) == "w1 w2 w3 w4"
    assert received[-1].channels == 1


async def test_text_is_bare_unless_punctuated(service: Running) -> None:
    received = await listen(service, pcm16(TALK), punctuate=None)
    words = [w for m in finals(received) for w in m.channel.alternatives[0].words]
    assert all(w.punctuated_word is None for w in words)


async def test_finalize_flushes_and_the_stream_goes_on(service: Running) -> None:
    received: list[Any] = []
    options = {"model": "nova-3", "encoding": "linear16", "sample_rate": 16000}
    async with client_of(service).listen.v1.connect(**options) as connection:
        connection.on(EventType.MESSAGE, received.append)
        listening = asyncio.create_task(connection.start_listening())
        await connection.send_media(pcm16(babble(2.0)))
        await connection.send_finalize()
        await until(lambda: any(m.from_finalize for m in received))
        assert text(received) == "w0 w1 w2 w3"
        await connection.send_finalize()  # nothing to flush: answered all the same
        await until(lambda: sum(bool(m.from_finalize) for m in received) == 2)
        await connection.send_media(pcm16(babble(1.0)))
        await connection.send_keep_alive()
        await connection.send_close_stream()
        await asyncio.wait_for(listening, 30)
    assert text(received) == "w0 w1 w2 w3 w4 w5"


async def test_keyterms_can_change_while_the_stream_runs(service: Running) -> None:
    from deepgram.listen.v1.types import ListenV1Configure

    received: list[Any] = []
    options = {"model": "nova-3", "encoding": "linear16", "sample_rate": 16000, "keyterm": "Acme"}
    async with client_of(service).listen.v1.connect(**options) as connection:
        connection.on(EventType.MESSAGE, received.append)
        listening = asyncio.create_task(connection.start_listening())
        await connection.send_configure(
            ListenV1Configure(type="Configure", keyterms=["Wordwire", "Whisper"])
        )
        await connection.send_media(pcm16(babble(1.0)))
        await connection.send_close_stream()
        await asyncio.wait_for(listening, 30)
    assert received[0].type == "ConfigureSuccess"
    assert received[0].keyterms == ["Wordwire", "Whisper"]
    engine = service.service._engine  # type: ignore[attr-defined]
    assert engine is not None
    asked = [options.hotwords for options in engine.options]  # type: ignore[attr-defined]
    assert ("Acme",) in asked
    assert asked[-1] == ("Wordwire", "Whisper")


@pytest.mark.parametrize(
    "sent",
    [
        "qwerty",
        "{",
        "[]",
        "null",
        '"x"',
        '{"type":5}',
        '{"type":"nope"}',
        "[" * 100,
        "x" * 2**20,
        '{"type":"KeepAlive","type":"CloseStream"}',
        '{"type":"Finalize","channel":7}',
        '{"type":"Configure","keyterms":"x"}',
    ],
)
async def test_a_wrong_message_is_answered_and_the_session_goes_on(
    service: Running, sent: str
) -> None:
    url = f"{service.ws}/v1/listen?encoding=linear16&sample_rate=16000&punctuate=true"
    async with websockets.connect(url) as socket:
        await socket.send(sent)
        answer = json.loads(await asyncio.wait_for(socket.recv(), 30))
        assert answer["type"] == "Error"
        assert answer["variant"] == "SchemaError"
        assert "expected" in answer["description"]
        await socket.send(pcm16(babble(1.0)))
        await socket.send('{"type":"CloseStream"}')
        rest = [json.loads(message) async for message in socket]
    assert rest[0]["channel"]["alternatives"][0]["transcript"] == "w0 w1"
    assert rest[-1]["type"] == "Metadata"
    assert socket.close_code == 1000


async def test_silence_on_the_socket_closes_it_with_net_0001(
    service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(route, "SILENCE_LIMIT_S", 0.4)
    url = f"{service.ws}/v1/listen?encoding=linear16&sample_rate=16000"
    loop = asyncio.get_running_loop()
    for _ in range(5):
        # the longest between two messages: a machine may stand still for more than is allowed
        longest_s, was_kept, received = 0.0, False, []
        async with websockets.connect(url) as socket:
            with pytest.raises(websockets.ConnectionClosed):
                await socket.send(pcm16(babble(1.0)))
                for _ in range(4):
                    sent = loop.time()
                    await asyncio.sleep(0.2)
                    longest_s = max(longest_s, loop.time() - sent)
                    await socket.send('{"type":"KeepAlive"}')
                was_kept = True
                while True:
                    received.append(json.loads(await asyncio.wait_for(socket.recv(), 30)))
        if longest_s < 0.3:
            break
    assert was_kept and longest_s < 0.3, longest_s
    assert socket.close_code == 1011
    assert "NET-0001" in str(socket.close_reason)
    assert any(m["type"] == "Results" for m in received), "what was said is delivered first"


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("encoding=linear16", "sample_rate"),
        ("encoding=speex&sample_rate=8000", "encoding"),
        ("redact=pci", "redact"),
        ("language=xx", "language"),
        ("encoding=linear16&sample_rate=16000&channels=3", "channels"),
    ],
)
async def test_what_cannot_be_served_is_refused_at_the_handshake(
    service: Running, query: str, named: str
) -> None:
    with pytest.raises(websockets.InvalidStatus) as caught:
        await websockets.connect(f"{service.ws}/v1/listen?{query}")
    response = caught.value.response
    assert response.status_code == 400
    assert named in response.headers["dg-error"]
    assert json.loads(response.body)["err_msg"] == response.headers["dg-error"]
    assert response.headers["dg-request-id"]


async def test_the_scheme_of_a_subprotocol_key_is_accepted(service: Running) -> None:
    url = f"{service.ws}/v1/listen?encoding=linear16&sample_rate=16000"
    protocols = [websockets.Subprotocol("token"), websockets.Subprotocol("any-key")]
    async with websockets.connect(url, subprotocols=protocols) as socket:
        assert socket.subprotocol == "token"


async def test_bytes_that_are_no_container_close_with_data_0000(service: Running) -> None:
    async with websockets.connect(f"{service.ws}/v1/listen") as socket:
        await socket.send(b"\x00\x01 this is not audio " * 4000)
        await socket.send('{"type":"CloseStream"}')
        received = [json.loads(message) async for message in until_closed(socket)]
    assert received[-1]["code"] == "DATA-0000"
    assert socket.close_code == 1008


async def test_an_empty_message_closes_the_stream(service: Running) -> None:
    url = f"{service.ws}/v1/listen?encoding=linear16&sample_rate=16000&punctuate=true"
    async with websockets.connect(url) as socket:
        await socket.send(pcm16(babble(1.0)))
        await socket.send(b"")
        received = [json.loads(message) async for message in socket]
    assert received[0]["channel"]["alternatives"][0]["transcript"] == "w0 w1"
    assert received[-1]["type"] == "Metadata"


async def test_a_client_that_vanishes_frees_its_session(service: Running) -> None:
    url = f"{service.ws}/v1/listen?encoding=linear16&sample_rate=16000"
    socket = await websockets.connect(url)
    await socket.send(pcm16(TALK))
    await until(lambda: service.service.num_sessions == 1)
    socket.transport.abort()
    await until(lambda: service.service.num_sessions == 0)


async def test_the_synchronous_client_gets_the_same(service: Running) -> None:
    def talk() -> list[Any]:
        client = deepgram.DeepgramClient(api_key="any", environment=environment_of(service))
        received: list[Any] = []
        options = {"encoding": "linear16", "sample_rate": 16000, "punctuate": True}
        with client.listen.v1.connect(model="nova-3", **options) as connection:
            connection.on(EventType.MESSAGE, received.append)
            audio = pcm16(TALK)
            for first in range(0, len(audio), 8000):
                connection.send_media(audio[first : first + 8000])
            connection.send_close_stream()
            connection.start_listening()
        return received

    received = await asyncio.to_thread(talk)
    assert text(received) == "w2 w3 w4 w5 w10 w11 w12"
    assert kinds(received)[-1] == "Metadata"


KEY = "a-key-of-enough-characters"


async def test_keys_are_taken_where_deepgram_takes_them() -> None:
    config = ServerConfig(port=0, api_keys=(KEY,))
    async with running(config=config) as service:
        options = {"model": "nova-3", "encoding": "linear16", "sample_rate": 16000}
        received: list[Any] = []
        async with client_of(service, KEY).listen.v1.connect(**options) as connection:
            connection.on(EventType.MESSAGE, received.append)
            listening = asyncio.create_task(connection.start_listening())
            await connection.send_media(pcm16(babble(1.0)))
            await connection.send_close_stream()
            await asyncio.wait_for(listening, 30)
        assert text(received) == "w0 w1"
        with pytest.raises(ApiError) as caught:
            async with client_of(service, "wrong").listen.v1.connect(**options):
                pass
        assert caught.value.status_code == 401
        url = f"{service.ws}/v1/listen?encoding=linear16&sample_rate=16000"
        for scheme in ("token", "bearer"):
            protocols = [websockets.Subprotocol(scheme), websockets.Subprotocol(KEY)]
            async with websockets.connect(url, subprotocols=protocols) as socket:
                assert socket.subprotocol == scheme, "a browser breaks off without a choice"
        with pytest.raises(websockets.InvalidStatus):
            await websockets.connect(url)


async def test_a_service_that_stops_delivers_first() -> None:
    async with running(config=ServerConfig(port=0, drain_timeout_s=5)) as service:
        url = f"{service.ws}/v1/listen?encoding=linear16&sample_rate=16000&punctuate=true"
        async with websockets.connect(url) as socket:
            await socket.send(pcm16(babble(2.0)))
            await service.wait_heard(2.0)
            draining = asyncio.create_task(service.service.drain())
            received = [json.loads(message) async for message in until_closed(socket)]
            await asyncio.wait_for(draining, 30)
        assert received[0]["channel"]["alternatives"][0]["transcript"] == "w0 w1 w2 w3"
        assert received[-1]["type"] == "Metadata"
        assert socket.close_code == 1012
        with pytest.raises(websockets.InvalidStatus) as caught:
            await websockets.connect(url)
        assert caught.value.response.status_code == 503
        assert caught.value.response.headers["retry-after"]
