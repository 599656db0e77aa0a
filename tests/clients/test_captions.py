"""One session at the terminal, with a stream that says what it is told to."""

from __future__ import annotations

import argparse
import asyncio
import io
import os
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest

from clients import captions
from clients.captions import build_start, caption, read_key, show_on, stop_on_interrupt, wait_on
from clients.display import Display
from clients.handshake import ClientError
from streamer.protocol import Done, Error, Final, Partial, ServerMessage


class FakeStream:
    """Answers each block with a final, and breaks where it is told to."""

    def __init__(self, breaks_after: int | None = None) -> None:
        self.sent: list[bytes] = []
        self._breaks_after = breaks_after
        self._answers: asyncio.Queue[ServerMessage | None] = asyncio.Queue()

    async def send(self, audio: bytes) -> None:
        self.sent.append(audio)
        if self._breaks_after == len(self.sent):
            self._answers.put_nowait(None)
        else:
            number = len(self.sent) - 1
            self._answers.put_nowait(Final(0, number, f"t{number}", 0, 1, "en", True, 0.0))
        await asyncio.sleep(0)

    async def end(self) -> None:
        self._answers.put_nowait(Done(1.0, len(self.sent)))

    async def __aiter__(self) -> AsyncIterator[ServerMessage]:
        while True:
            message = await self._answers.get()
            if message is None:
                raise ClientError("broken")
            yield message
            if isinstance(message, Done):
                return


async def _blocks(count: int) -> AsyncIterator[bytes]:
    for number in range(count):
        yield bytes([number])
        await asyncio.sleep(0)


async def test_all_blocks_are_sent_and_all_finals_returned() -> None:
    stream: Any = FakeStream()
    shown: list[ServerMessage] = []
    finals = await caption(stream, _blocks(3), shown.append)
    assert [final.text for final in finals] == ["t0", "t1", "t2"]
    assert stream.sent == [b"\0", b"\1", b"\2"] and isinstance(shown[-1], Done)


async def test_a_session_that_breaks_off_stops_the_sending() -> None:
    stream: Any = FakeStream(breaks_after=2)
    with pytest.raises(ClientError, match="broken"):
        await caption(stream, _blocks(1000), lambda _message: None)
    assert len(stream.sent) < 1000


async def test_a_source_that_fails_is_not_hidden() -> None:
    async def fail() -> AsyncIterator[bytes]:
        yield b"x"
        raise OSError("disk gone")

    stream: Any = FakeStream()
    with pytest.raises(OSError, match="disk gone"):
        await caption(stream, fail(), lambda _message: None)


async def test_the_first_interrupt_asks_to_stop_and_the_second_interrupts() -> None:
    previous = signal.getsignal(signal.SIGINT)
    try:
        with stop_on_interrupt() as stop:
            os.kill(os.getpid(), signal.SIGINT)
            async with asyncio.timeout(30):
                await stop.wait()
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, previous)


def test_options_become_the_opening_message(monkeypatch: pytest.MonkeyPatch) -> None:
    parser = argparse.ArgumentParser()
    captions.add_session_arguments(parser)
    arguments = parser.parse_args(
        ["--language", "de", "--hotwords", "Ada, Grace,", "--delay", "high"]
    )
    start = build_start(arguments, sample_rate=8000, channels=2, words=True)
    assert (start.language, start.hotwords, start.delay) == ("de", ["Ada", "Grace"], "high")
    assert (start.sample_rate, start.channels, start.words) == (8000, 2, True)
    monkeypatch.setenv("WORDWIRE_API_KEY", "from the environment")
    assert read_key(arguments) == "from the environment"
    assert read_key(parser.parse_args(["--key", "given"])) == "given"


def test_messages_reach_the_display() -> None:
    out = io.StringIO()
    display = Display(out, is_terminal=True)
    show = show_on(display)
    show(Partial(0, 0, "so", " far", 0, 1, "en", 0.0))
    show(Error("odd_bytes", "one too many", False))
    show(Final(0, 0, "so far.", 0, 1, "en", True, 0.0))
    wait_on(display)("no server answers", 2.4)
    for words in (" far", "one too many", "so far.\n", "trying again in 2 s"):
        assert words in out.getvalue()
