"""An engine's process does what its owner says, and ends with him."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from engine.api import StreamLost, StreamOptions, Window
from engine.process.wire import (
    REPORTS,
    Close,
    Counted,
    Decode,
    Decoded,
    DecodeFailed,
    Load,
    Loaded,
    LoadFailed,
    Logged,
    Open,
    Opened,
    Order,
    Recipe,
    Report,
    Unpacker,
    pack,
)

WINDOW = Window(0, np.zeros(160, np.float32))


class Owner:
    """The other end of a worker's socket, one message after another."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "engine.process.worker", str(theirs.fileno())],
            pass_fds=(theirs.fileno(),),
        )
        theirs.close()
        self._socket.settimeout(60)  # a slow machine takes long to start an interpreter
        self._unpacker = Unpacker(REPORTS)
        self._found: list[Report] = []

    def say(self, *orders: Order) -> None:
        self._socket.sendall(b"".join(map(pack, orders)))

    def hear(self, kind: type[Report]) -> Report:
        """Wait for a report of a kind; others are left out."""
        while True:
            while self._found:
                report = self._found.pop(0)
                if isinstance(report, kind):
                    return report  # type: ignore[return-value]
            data = self._socket.recv(1 << 20)
            assert data, "the process is gone"
            self._found += self._unpacker.receive(data)

    def leave(self) -> None:
        self._socket.close()


@pytest.fixture
def owner() -> Iterator[Owner]:
    found = Owner()
    yield found
    found.leave()
    assert found.process.wait(60) == 0


def load(name: str = "echo") -> Load:
    return Load(Recipe("tests.support.engines", "make_echo", name), 20)


def test_orders_sent_before_the_engine_is_there_are_carried_out(owner: Owner) -> None:
    owner.say(load(), Open(1, StreamOptions(language="de")))
    loaded = owner.hear(Loaded)
    assert isinstance(loaded, Loaded) and loaded.info.name == "echo"
    assert owner.hear(Opened) == Opened(1)
    owner.say(Decode(7, 1, WINDOW))
    decoded = owner.hear(Decoded)
    assert isinstance(decoded, Decoded) and decoded.request == 7


def test_a_stream_that_is_not_open_is_lost(owner: Owner) -> None:
    owner.say(load(), Open(1, StreamOptions()), Close(1), Decode(2, 1, WINDOW))
    failed = owner.hear(DecodeFailed)
    assert isinstance(failed, DecodeFailed) and isinstance(failed.fault.error, StreamLost)


def test_bugs_go_to_the_owners_log_with_their_traceback(owner: Owner) -> None:
    owner.say(load(), Open(1, StreamOptions()))
    owner.hear(Opened)
    owner.say(Decode(2, 1, Window(0, WINDOW.audio, prompt="bug")))
    logged = owner.hear(Logged)
    assert isinstance(logged, Logged) and logged.name == "engine.process.worker"
    assert "Traceback" in logged.text and "KeyError" in logged.text


def test_the_engines_numbers_are_reported(owner: Owner) -> None:
    owner.say(load(), Open(1, StreamOptions()))
    counted = owner.hear(Counted)
    assert isinstance(counted, Counted) and counted.counters["streams"] == 1


def test_an_engine_that_cannot_be_made_is_reported_and_the_process_ends(owner: Owner) -> None:
    owner.say(load("broken"))
    failed = owner.hear(LoadFailed)
    assert isinstance(failed, LoadFailed) and "broken" in failed.fault.message


def test_it_ends_when_its_owner_goes_even_while_it_loads() -> None:
    owner = Owner()
    owner.say(load())
    owner.leave()
    owner.process.wait(60)
