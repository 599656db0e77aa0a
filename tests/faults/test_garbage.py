"""Whatever clients send, it is their own session that suffers, and never by our fault.

`WORDWIRE_GARBAGE=400` sets the number of sessions per protocol, and has others each time; without
it they are the same ones. A session is about 25 messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar
from urllib.parse import urlencode

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from streamer.config import ServerConfig
from tests.faults import garbage
from tests.faults.garbage import Sent, messages
from tests.faults.speaker import speak, speech, words_of
from tests.support import hostile_json
from tests.support.engines import CountingEngine
from tests.support.running_service import running

T = TypeVar("T")

NUM_SESSIONS = int(os.environ.get("WORDWIRE_GARBAGE", "12"))
CODES = {1000, 1003, 1005, 1007, 1008, 1009, 1012, 1013}  # 1011 would be our bug

# uvicorn's words for a refusal, and for what is answered with 1007; the command leaves them out
NOISE = (
    "ASGI callable returned without completing handshake.",
    "Invalid UTF-8 sequence received from client.",
)


class Target(logging.Handler):
    """A service, what it logs as errors, and what it was sent."""

    def __init__(self, url: str, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(logging.ERROR)
        self.url = url
        self.problems: list[str] = []
        self.num_sent = 0
        self._loop = loop
        self.setFormatter(logging.Formatter("%(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        if record.msg in NOISE:
            return
        self.problems.append(self.format(record))

    def do(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run in the service's loop, from another thread: hypothesis knows no coroutines."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60)

    def check(self, path: str, sent: list[Sent]) -> None:
        """Send all of it, and see that nothing is our fault."""
        code = self.do(self._attack(path, sent))
        assert code is None or code in CODES, code
        problems, self.problems[:] = list(self.problems), []
        assert not problems, problems

    async def _attack(self, path: str, sent: list[Sent]) -> int | None:
        """Return the code that the service closed with, None if it did not."""
        try:
            socket = await connect(self.url + path, compression=None, max_size=None)
        except InvalidStatus as error:
            assert error.response.status_code < 500, error.response
            return None
        with contextlib.suppress(ConnectionClosed, TimeoutError):
            for message in sent:
                await socket.send(message.data)
                self.num_sent += 1
            async with asyncio.timeout(0.05):
                while True:
                    await socket.recv()
        # a client that goes without a word, as they do
        code = socket.close_code
        socket.transport.abort()
        return code


@pytest.fixture
async def target() -> AsyncIterator[Target]:
    config = ServerConfig(
        port=0,
        drain_timeout_s=1.0,
        calibrate=False,
        start_timeout_s=5.0,
        resume_grace_s=0.1,
        call_grace_s=0.1,
    )
    async with running(CountingEngine, config) as service:
        found = Target(service.ws, asyncio.get_running_loop())
        loggers = [logging.getLogger(name) for name in ("streamer", "asyncio", "uvicorn")]
        for logger in loggers:
            logger.addHandler(found)
        yield found
        for logger in loggers:
            logger.removeHandler(found)
        # after all that no session is left over, and a good client is heard
        async with asyncio.timeout(20):
            while service.service.num_sessions:
                await asyncio.sleep(0.05)
        heard = await speak(service.ws, speech(1), pace=8, vad_threshold=0)
        assert heard.words == words_of(1)
        print(f"{found.num_sent} messages sent")


hostile = settings(
    max_examples=NUM_SESSIONS,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    database=None,
    derandomize="WORDWIRE_GARBAGE" not in os.environ,
)

PROTOCOLS = {
    "/v1/stream": messages(garbage.NATIVE, garbage.NATIVE_SHAPES),
    "/v1/listen": messages(garbage.DEEPGRAM),
    "/v1/listen?encoding=linear16&sample_rate=16000&interim_results=true": messages(
        garbage.DEEPGRAM
    ),
    "/v1/realtime?intent=transcription": messages(garbage.REALTIME),
    "/v1/twilio": messages(garbage.TWILIO),
    "/v1/whisperlive": messages(garbage.WHISPERLIVE, garbage.WHISPERLIVE_SHAPES),
}


@pytest.mark.parametrize("path", PROTOCOLS)
async def test_garbage_harms_nobody(target: Target, path: str) -> None:
    @hostile
    @given(PROTOCOLS[path])
    def attack(sent: list[Sent]) -> None:
        target.check(path, sent)

    await asyncio.to_thread(attack)


@pytest.mark.parametrize("path", ["/v1/stream", "/v1/listen"])
async def test_garbage_in_the_address_harms_nobody(target: Target, path: str) -> None:
    names = st.sampled_from(
        "encoding sample_rate channels language words delay silence_ms endpointing keyterm "
        "interim_results utterance_end_ms vad_events multichannel tag".split()
    )
    texts = st.text(max_size=12) | st.sampled_from(["-1", "8000", "2", "en", "true", "nan"])

    @hostile
    @given(st.lists(st.tuples(names, texts), max_size=8))
    def attack(query: list[tuple[str, str]]) -> None:
        encoded = urlencode([(name, text.encode("utf-8", "ignore")) for name, text in query])
        target.check(f"{path}?{encoded}", [Sent(garbage.SOUND)])

    await asyncio.to_thread(attack)


SECRETS = {
    "/v1/realtime/client_secrets": {
        "expires_after": {"anchor": "created_at", "seconds": 60},
        "session": garbage.REALTIME[0]["session"],
    },
    "/v1/realtime/transcription_sessions": garbage.REALTIME[1]["session"],
}


@pytest.mark.parametrize("path", SECRETS)
async def test_no_json_makes_a_request_fail(target: Target, path: str) -> None:
    shapes = [SECRETS[path], *(seed.get("session", seed) for seed in garbage.REALTIME)]
    bodies = hostile_json.spoiled(st.sampled_from(shapes))

    async with httpx.AsyncClient(base_url=target.url.replace("ws", "http", 1)) as client:

        @settings(hostile, max_examples=10 * NUM_SESSIONS)
        @given(bodies | st.sampled_from([m for m in garbage.KNOWN if isinstance(m, str)]))
        def attack(body: str) -> None:
            answer = target.do(client.post(path, content=body.encode()))
            assert answer.status_code < 500, body
            if answer.status_code != 200:
                error = answer.json()["error"]
                assert error["code"] and "param" in error
            problems, target.problems[:] = list(target.problems), []
            assert not problems, problems

        await asyncio.to_thread(attack)


@pytest.mark.parametrize("is_started", [False, True])
async def test_a_session_goes_on_after_what_it_cannot_read(
    target: Target, is_started: bool
) -> None:
    opening = '{"type":"start","vad_threshold":0}'
    for message in garbage.KNOWN:
        if isinstance(message, bytes) or "start" in message or "update" in message:
            continue  # audio is audio, and a start or an update may be a good one
        words: list[str] = []
        async with connect(f"{target.url}/v1/stream", compression=None) as socket:
            first = [opening, message] if is_started else [message, opening]
            for part in (*first, speech(1), '{"type":"end"}'):
                await socket.send(part)
            kinds = []
            async for text in socket:
                received = json.loads(text)
                kinds.append(received["type"])
                if received["type"] == "final":
                    words += received["text"].split()
        assert "error" in kinds and kinds[-1] == "done", (message[:20], kinds)
        assert words == words_of(1), message[:20]
