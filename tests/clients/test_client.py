"""The client against a real service, over a network that breaks."""

from __future__ import annotations

import asyncio
import socket
import types
from collections.abc import Callable

import pytest
from websockets.asyncio.server import ServerConnection, serve

from clients import client, retry
from clients.client import ClientError, NoServer, Refused, Stream, connect
from streamer.config import ServerConfig
from streamer.protocol import Done, Final, Ready, ServerMessage, Start
from tests.support.audio import babble, pcm16, quiet
from tests.support.cutting_proxy import relay
from tests.support.running_service import Running, running

START = Start(vad_threshold=0.0)
TALK = pcm16(babble(6.0))
WORDS = " ".join(f"w{i}" for i in range(12))


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "FIRST_DELAY_S", 0.05)


@pytest.fixture
def service_config() -> ServerConfig:
    return _config()


def _config(**changes: object) -> ServerConfig:
    return ServerConfig(port=0, drain_timeout_s=2.0, **changes)  # type: ignore[arg-type]


async def _collect(stream: Stream, on_message: Callable[[ServerMessage], None]) -> list[Final]:
    finals = []
    async with asyncio.timeout(30):
        async for message in stream:
            on_message(message)
            if isinstance(message, Final):
                finals.append(message)
    return finals


async def _talk(
    url: str,
    sound: bytes = TALK,
    *,
    size: int = 3200,
    pause_s: float = 0.01,
    before: Callable[[int], None] = lambda _byte: None,
    start: Start = START,
    **options: object,
) -> tuple[list[Final], list[ServerMessage]]:
    messages: list[ServerMessage] = []
    async with connect(url, start, **options) as stream:  # type: ignore[arg-type]
        collecting = asyncio.create_task(_collect(stream, messages.append))
        for byte in range(0, len(sound), size):
            before(byte)
            await stream.send(sound[byte : byte + size])
            await asyncio.sleep(pause_s)
        await stream.end()
        return await collecting, messages


def _text(finals: list[Final]) -> str:
    return " ".join(final.text.strip() for final in finals if final.text)


async def test_a_session_gives_every_word(service: Running) -> None:
    finals, messages = await _talk(service.ws)
    assert _text(finals) == WORDS
    assert isinstance(messages[0], Ready) and isinstance(messages[-1], Done)


async def test_sound_may_be_sent_before_anything_is_read(service: Running) -> None:
    async with connect(service.http, START) as stream:
        await stream.send(TALK)
        await stream.end()
        assert _text(await _collect(stream, lambda _message: None)) == WORDS


async def test_updates_and_finalize_reach_the_session(service: Running) -> None:
    start = Start(vad_threshold=0.0, endpointing="manual")
    async with connect(service.ws, start) as stream:
        await stream.send(TALK[:64_000])
        await stream.finalize()
        await stream.update(language="de", hotwords=["a"])
        await stream.send(TALK[64_000:])
        await stream.end()
        finals = await _collect(stream, lambda _message: None)
    assert [final.text.strip() for final in finals] == ["w0 w1 w2 w3", WORDS[12:]]
    assert finals[-1].language == "de"


@pytest.mark.parametrize("cuts", [1, 3])
async def test_broken_connections_lose_and_double_no_word(service: Running, cuts: int) -> None:
    async with relay(service.port) as network:
        places = {(i + 1) * len(TALK) // (cuts + 1) // 3200 * 3200 for i in range(cuts)}

        def cut(byte: int) -> None:
            if byte in places:
                network.cut()

        finals, messages = await _talk(f"ws://127.0.0.1:{network.port}", before=cut, pause_s=0.03)
    assert _text(finals) == WORDS
    assert sum(isinstance(m, Ready) and m.resumed for m in messages) >= 1
    assert isinstance(messages[-1], Done) and messages[-1].duration == 6.0


async def test_a_session_that_is_gone_is_begun_again_where_text_was_final() -> None:
    async with running(config=_config(resume_grace_s=0.0)) as service:
        async with relay(service.port) as network:
            sound = pcm16(babble(2.0)) + pcm16(quiet(1.5)) + pcm16(babble(2.0)) + pcm16(quiet(1.0))

            def cut(byte: int) -> None:
                if byte == 3200 * 45:  # in the second sentence
                    network.cut()

            start = Start(vad_threshold=0.0, words=True)
            finals, _ = await _talk(
                f"ws://127.0.0.1:{network.port}", sound, before=cut, pause_s=0.04, start=start
            )
    # everything is speech to this session, so all of it was open, and is heard again
    assert _text(finals) == "w0 w1 w2 w3 w7 w8 w9 w10"
    words = [word for final in finals for word in final.words or ()]
    assert [word.start for word in words] == [0.0, 0.5, 1.0, 1.5, 3.5, 4.0, 4.5, 5.0]


async def test_a_server_that_stops_is_continued_on_the_next_one() -> None:
    async with running(config=_config()) as first, running(config=_config()) as second:
        async with relay(first.port) as network:
            drains = []

            def stop(byte: int) -> None:
                if byte == 3200 * 30:
                    network.target = second.port
                    drains.append(asyncio.create_task(first.service.drain()))

            finals, _ = await _talk(f"ws://127.0.0.1:{network.port}", before=stop, pause_s=0.03)
            await asyncio.gather(*drains)
    # the second server counts from where the first one stopped
    assert finals[-1].end == pytest.approx(6.0, abs=0.3)
    covered = sum(final.end - final.start for final in finals)
    assert covered == pytest.approx(6.0, abs=0.5)


async def test_sound_is_kept_while_nobody_answers(service: Running) -> None:
    async with relay(service.port) as network:
        waits: list[float] = []

        def storm(byte: int) -> None:
            if byte == 3200 * 10:
                network.is_open = False
                network.cut()

        def wait(_reason: str, delay_s: float) -> None:
            waits.append(delay_s)
            network.is_open = len(waits) >= 4

        finals, _ = await _talk(
            f"ws://127.0.0.1:{network.port}", before=storm, pause_s=0.02, on_wait=wait
        )
    assert _text(finals) == WORDS
    assert len(waits) == 4 and waits[2] > waits[0]


async def test_nobody_there_is_said_at_once() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with pytest.raises(NoServer, match="no server answers"):
            async with connect(f"ws://127.0.0.1:{port}"):
                pass


async def test_a_full_server_is_named_with_a_time_to_come_back() -> None:
    async with running(config=_config(max_sessions=1)) as service:
        async with connect(service.ws, START) as stream:
            async for message in stream:
                assert isinstance(message, Ready)
                break
            with pytest.raises(Refused, match="503") as refused:
                async with connect(service.ws, START):
                    pass
    assert refused.value.code == "busy" and refused.value.retry_after_s is not None


async def test_a_fatal_error_ends_the_iteration(service: Running) -> None:
    async with connect(service.ws, Start(max_segment_s=1.0)) as stream:
        with pytest.raises(Refused, match="max_segment_s"):
            await _collect(stream, lambda _message: None)


async def test_a_server_that_is_loading_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "LOADING_POLL_S", 0.05)
    async with running(config=_config()) as service:
        engine, service.service._engine = service.service._engine, None
        waits: list[str] = []

        def wait(reason: str, _delay_s: float) -> None:
            waits.append(reason)
            if len(waits) == 3:
                service.service._engine = engine

        finals, _ = await _talk(service.ws, on_wait=wait)
    assert _text(finals) == WORDS and "loading" in waits[0]


@pytest.mark.parametrize(
    ("code", "is_retried"), [(1008, False), (4001, False), (1012, True), (1013, True)]
)
async def test_close_codes_decide_whether_to_come_back(
    monkeypatch: pytest.MonkeyPatch, code: int, is_retried: bool
) -> None:
    monkeypatch.setattr(retry, "GIVE_UP_AFTER_S", 1.0)
    waits: list[float] = []
    # its clock knows what it waited for, and not what the machine took beside that
    clock = types.SimpleNamespace(monotonic=lambda: sum(waits))
    monkeypatch.setattr(client, "time", clock)
    num_tries = 0

    async def slam(connection: ServerConnection) -> None:
        nonlocal num_tries
        num_tries += 1
        await connection.close(code, "go away")

    async with serve(slam, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ClientError, match="go away"):
            url, wait = f"ws://127.0.0.1:{port}", lambda _reason, delay_s: waits.append(delay_s)
            async with connect(url, START, on_wait=wait) as stream:
                await _collect(stream, lambda _message: None)
    # doubled each time, give or take the jitter: four fit into the second
    assert num_tries == 1 + len(waits) == (5 if is_retried else 1)
    assert waits == sorted(waits)
