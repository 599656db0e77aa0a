"""A service that is asked to stop finishes what was said, tells its clients, and goes."""

from __future__ import annotations

import asyncio
import io
import signal
import socket
import time
import wave

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.faults.speaker import PAUSE_S, SENTENCE_S, speak, speech, words_of
from tests.faults.victim import Victim, victim

LIMIT_S = 10.0  # within which a stopped service has to be gone


async def test_a_stop_under_eight_live_streams_delivers_every_word_and_exits_0() -> None:
    async with victim() as service:
        audio = speech(10)
        speaking = [
            asyncio.create_task(speak(service.ws, audio, pace=1, ends=False)) for _ in range(8)
        ]
        idle = await connect(f"{service.ws}/v1/stream")
        async with asyncio.timeout(60):
            while await _num_finals(service) < 8:  # everyone's first sentence is text
                await asyncio.sleep(0.05)
        await asyncio.sleep(1.2)  # and the second one is being spoken
        code, elapsed_s = await service.stop()
        heard = await asyncio.gather(*speaking)
        assert (code, elapsed_s < LIMIT_S) == (0, True), (code, elapsed_s)
        for each in heard:
            # the first sentence, and of the second what was said when the stop came
            assert len(each.words) >= 4 and each.words == words_of(3)[: len(each.words)]
            received_s = each.messages[-1]["duration"]
            assert len(each.words) >= sum(_spoken(received_s))
            assert [m["type"] for m in each.messages].count("reconnect") == 1
            assert each.messages[-1]["type"] == "done"
            assert each.close_code == 1012
        await idle.wait_closed()
        assert idle.close_code == 1012
        assert not service.tracebacks, service.tracebacks


async def _num_finals(service: Victim) -> float:
    return (await service.metrics()).get("wordwire_segments_total{withheld=no}", 0.0)


def _spoken(seconds: float) -> list[bool]:
    """Return for each whole half second up to there whether someone spoke in it."""
    period, spoken = int((SENTENCE_S + PAUSE_S) * 2), int(SENTENCE_S * 2)
    return [number % period < spoken for number in range(int(seconds * 2))]


async def test_who_comes_during_the_stop_is_refused() -> None:
    async with victim("--cost-s=1.0", "--width=1", "--no-calibrate") as service:
        speaking = asyncio.create_task(speak(service.ws, speech(4), ends=False))
        await service.wait_open(1)
        await asyncio.sleep(0.8)
        stopping = asyncio.create_task(service.stop())
        await service.wait_logged("finishing 1 sessions")
        with pytest.raises((OSError, InvalidStatus)):
            await connect(f"{service.ws}/v1/stream")
        assert (await stopping)[0] == 0
        assert (await speaking).close_code == 1012


async def test_a_stop_does_not_wait_longer_than_its_limit() -> None:
    async with victim("--cost-s=30", "--no-calibrate", "--drain-timeout-s=0.5") as service:
        speaking = asyncio.create_task(speak(service.ws, speech(4), ends=False))
        await service.wait_open(1)
        await asyncio.sleep(1.2)
        code, elapsed_s = await service.stop()
        assert code == 0 and elapsed_s < 15, (code, elapsed_s)  # a window takes 30 s
        assert (await speaking).close_code in (1012, 1006)


async def test_a_stop_does_not_wait_for_an_upload_that_never_ends() -> None:
    async with victim("--no-calibrate", "--drain-timeout-s=0.5") as service:
        with socket.create_connection(("127.0.0.1", service.port)) as raw:
            raw.sendall(
                b"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n"
                b"Content-Type: multipart/form-data; boundary=x\r\n\r\n--x\r\n"
            )
            await asyncio.sleep(0.2)
            code, elapsed_s = await service.stop()
        assert code == 0 and elapsed_s < 15, (code, elapsed_s)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_second_signal_ends_at_once(number: signal.Signals) -> None:
    # the first one alone would have it wait for a window that takes a minute
    async with victim("--cost-s=60", "--no-calibrate", "--drain-timeout-s=60") as service:
        speaking = asyncio.create_task(speak(service.ws, speech(4), ends=False))
        await service.wait_open(1)
        await asyncio.sleep(1.2)
        engine = service.engine
        service.process.send_signal(number)
        # two signals that wait to be handled are one
        await service.wait_logged("finishing 1 sessions")
        assert service.process.returncode is None
        code, elapsed_s = await service.stop(number)
        assert code != 0 and elapsed_s < 15, (code, elapsed_s)
        await speaking
        # nobody is left behind
        start = time.monotonic()
        while engine.is_running() and engine.status() != "zombie":
            assert time.monotonic() - start < 30
            await asyncio.sleep(0.05)


async def test_a_file_in_work_is_finished_before_the_stop() -> None:
    async with victim("--cost-s=0.3", "--width=1", "--no-calibrate") as service:
        body = io.BytesIO()
        with wave.open(body, "wb") as file:
            file.setparams((1, 2, 16_000, 0, "NONE", ""))
            file.writeframes(speech(3))
        async with httpx.AsyncClient(timeout=60) as client:
            posting = asyncio.create_task(
                client.post(
                    f"{service.http}/v1/audio/transcriptions",
                    files={"file": ("a.wav", body.getvalue())},
                    data={"model": "whisper-1", "language": "en"},
                )
            )
            async with asyncio.timeout(30):
                while not (await service.metrics())["wordwire_open_recordings"]:
                    await asyncio.sleep(0.02)
            code, _ = await service.stop()
            answer = await posting
        assert code == 0
        assert answer.status_code == 200 and answer.json()["text"].split() == words_of(3)
