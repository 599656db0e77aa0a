"""`wordwire listen` with a microphone that plays what it is given."""

from __future__ import annotations

import argparse
import asyncio
import sys
import threading
import types
from typing import Any

import numpy as np
import pytest

from clients import listen
from clients.listen import BLOCK_MS
from streamer.protocol import Start
from tests.support.audio import babble
from tests.support.running_service import running


class PortAudioError(Exception):
    pass


class FakeMicrophone:
    """Calls back from a thread of its own, as PortAudio does."""

    samples = (babble(2.0) * 32767).astype(np.int16)

    def __init__(self, *, blocksize: int, callback: Any, **_options: Any) -> None:
        self._size, self._callback = blocksize, callback
        self._thread = threading.Thread(target=self._play)

    def _play(self) -> None:
        for start in range(0, len(self.samples), self._size):
            self._callback(self.samples[start : start + self._size].tobytes(), 0, None, None)

    def __enter__(self) -> FakeMicrophone:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()


def _fake(**changes: Any) -> Any:
    module: Any = types.ModuleType("sounddevice")
    module.PortAudioError = PortAudioError
    module.query_devices = lambda *_: {"name": "desk", "default_samplerate": 16_000.0}
    module.RawInputStream = FakeMicrophone
    for name, value in changes.items():
        setattr(module, name, value)
    return module


def _arguments(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    listen.add_arguments(parser)
    return parser.parse_args(list(words))


async def test_what_the_microphone_hears_is_captioned(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(listen, "build_start", lambda *_args, **_fields: Start(vad_threshold=0.0))
    async with running() as service:
        task = asyncio.create_task(listen._listen(_arguments("--url", service.ws), _fake()))
        await service.wait_heard(2.0)
        # what Ctrl+C does
        import os
        import signal

        os.kill(os.getpid(), signal.SIGINT)
        assert await task == 0
    assert capsys.readouterr().out == "w0 w1 w2 w3\n"


def test_a_package_that_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    assert listen.run(_arguments()) == 1
    assert "pip install 'wordwire[microphone]'" in capsys.readouterr().err


def test_a_microphone_that_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none(*_: Any) -> Any:
        raise ValueError("no input device")

    monkeypatch.setitem(sys.modules, "sounddevice", _fake(query_devices=none))
    assert listen.run(_arguments("--device", "attic")) == 1
    assert "no microphone found named attic" in capsys.readouterr().err


def test_devices_are_listed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "sounddevice", _fake())
    assert listen.run(_arguments("--list-devices")) == 0
    assert "desk" in capsys.readouterr().out


async def test_a_stalled_connection_drops_the_oldest_audio_and_says_so() -> None:
    notes: list[str] = []

    class Notes:
        note = staticmethod(notes.append)

    size = 16 * BLOCK_MS
    count = 10 * listen.MAX_WAITING_BLOCKS

    played = threading.Event()

    class Burst(FakeMicrophone):
        samples = np.arange(count, dtype=np.int64).repeat(size)

        def _play(self) -> None:
            super()._play()
            played.set()

    stop = asyncio.Event()
    blocks = listen._record(
        _fake(RawInputStream=Burst),
        None,
        16_000,
        stop,
        Notes(),  # type: ignore[arg-type]
    )
    # the burst may come whole before the first block is taken, or after it
    taken = [_number(await anext(blocks))]
    assert await asyncio.to_thread(played.wait, 30)
    while taken[-1] < count - 1:
        taken.append(_number(await anext(blocks)))
    stop.set()
    await blocks.aclose()  # type: ignore[attr-defined]
    assert notes and "dropped" in notes[0]
    kept = taken[-(listen.MAX_WAITING_BLOCKS - 1) :]
    assert kept == list(range(kept[0], count)), "the newest audio is kept, in order"


def _number(block: bytes) -> int:
    return int(np.frombuffer(block, dtype=np.int64)[0])
