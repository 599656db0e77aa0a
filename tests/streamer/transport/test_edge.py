"""What ends a connection early, and what a protocol is asked to say of it."""

from __future__ import annotations

import logging

import pytest

from engine.api import EngineBusy, InvalidRequest, StreamLost
from streamer.audio.error import AudioError
from streamer.transport.connection import Disconnected, MessageTooBig, Overdue, SlowReader
from streamer.transport.edge import Fault, serve
from streamer.wire import ClientFault


class Client:
    """An adapter that ends as it is told."""

    name = "client 7"

    def __init__(self, error: Exception | None, on_fail: Exception | None = None) -> None:
        self._error = error
        self._on_fail = on_fail
        self.faults: list[Fault] = []
        self.closes: list[tuple[int, str]] = []

    async def run(self) -> None:
        if self._error is not None:
            raise self._error

    async def fail(self, fault: Fault) -> None:
        self.faults.append(fault)
        if self._on_fail is not None:
            raise self._on_fail

    async def close(self, code: int, reason: str) -> None:
        self.closes.append((code, reason))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ClientFault("odd", "x", field="f"), Fault(1008, "odd", "x", "f")),
        (Overdue("idle", "x"), Fault(1008, "idle", "x")),
        (MessageTooBig("x"), Fault(1009, "too_big", "x")),
        (AudioError("x"), Fault(1008, "invalid_audio", "x")),
        (InvalidRequest("x"), Fault(1008, "invalid_request", "x")),
        (EngineBusy("x"), Fault(1013, "busy", "x", retry_after_s=5.0)),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_each_error_is_one_fault(
    error: Exception, expected: Fault, caplog: pytest.LogCaptureFixture
) -> None:
    client = Client(error)
    await serve(client, client.close)
    assert client.faults == [expected] and client.closes == []
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("error", [RuntimeError("secret"), StreamLost("secret")])
async def test_a_bug_is_logged_and_not_shown(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    client = Client(error)
    await serve(client, client.close)
    assert client.faults == [Fault(1011, "internal", "internal error")]
    assert "client 7 failed" in caplog.text and "secret" in caplog.text
    assert "Traceback" in caplog.text


async def test_whoever_is_gone_is_told_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        for error in (None, Disconnected()):
            client = Client(error)
            await serve(client, client.close)
            assert client.faults == [] and client.closes == []
    assert "client 7: the client is gone" in caplog.text


async def test_whoever_does_not_read_is_only_closed() -> None:
    for client in (Client(SlowReader()), Client(ValueError(), on_fail=SlowReader())):
        await serve(client, client.close)
        assert client.closes == [(1008, "slow reader")]


async def test_whoever_leaves_while_it_is_told_is_let_go() -> None:
    client = Client(ClientFault("odd", "x"), on_fail=Disconnected())
    await serve(client, client.close)
    assert len(client.faults) == 1 and client.closes == []
