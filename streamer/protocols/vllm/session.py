"""One client of vLLM's realtime protocol, at OpenAI's address. docs/vllm-realtime.md specifies it.

Audio is transcribed as it comes. Its text is sent from the first commit on; the final one ends it.
"""

from __future__ import annotations

import asyncio
import json
import math
from dataclasses import dataclass
from typing import Any

from engine.api import SAMPLE_RATE, ModelInfo
from streamer.audio.pcm import AudioFormat
from streamer.protocols.model_names import is_served
from streamer.service import Service
from streamer.session.live import LiveSession
from streamer.transcription.events import Final, Partial
from streamer.transcription.settings import SessionSettings
from streamer.transcription.word import follow
from streamer.transport import base64_audio
from streamer.transport.connection import MAX_ERRORS, Connection, MessageTooBig, race
from streamer.transport.edge import Fault
from streamer.wire import ClientFault, parse_object

# vLLM's names of what can go wrong
ERROR_CODES = {
    "too_big": "invalid_event",
    "busy": "processing_error",
    "invalid_request": "processing_error",
    "internal": "processing_error",
}
AUDIO_TOKEN_LENGTH = SAMPLE_RATE * 2 // 25  # samples; Voxtral's 12.5 audio tokens a second


@dataclass(frozen=True, slots=True)
class _Commit:
    """The client wants the text; where it is final, no more audio of this turn comes."""

    is_final: bool


class VllmSession:
    """Serves transcriptions one after the other, for as long as the client stays."""

    name = "vllm session"

    def __init__(
        self,
        service: Service,
        connection: Connection,
        info: ModelInfo,
        first: dict[str, Any],
    ) -> None:
        """Take over a connection.

        Args:
            first: the client's first message, which has been read already.
        """
        self._service = service
        self._connection = connection
        self._info = info
        self._first = first
        self._is_validated = False  # the client named the model
        # what came and is not fed; what comes behind a turn's end belongs to the next one
        self._items: asyncio.Queue[bytes | _Commit] = asyncio.Queue(1)
        self._is_started = False  # the client wants text of this turn
        self._text = ""  # of this turn, as far as it is settled
        self._num_sent = 0  # characters of it
        self._fault: Exception | None = None  # the client's, for which no more audio is taken
        self._num_errors = 0

    async def run(self) -> None:
        await self._select(self._first.get("model"))
        await race(self._read(), self._serve_turns(), self._connection.wait_lost())

    async def fail(self, fault: Fault) -> None:
        code = ERROR_CODES.get(fault.code, fault.code)
        await self._send_error(fault.message, code)
        await self._connection.close(fault.close_code, code)

    async def _serve_turns(self) -> None:
        while True:
            await self._transcribe()
            if self._fault is not None:
                raise self._fault

    async def _transcribe(self) -> None:
        """Wait for audio, and transcribe it up to the final commit."""
        self._is_started, self._text, self._num_sent = False, "", 0
        while isinstance(item := await self._items.get(), _Commit):
            self._is_started = True
            if item.is_final:
                await self._send_done("", 0)
                return
        audio_format, settings = AudioFormat("pcm_s16le", SAMPLE_RATE, 1), SessionSettings()
        async with self._service.session(audio_format, settings) as live:
            await race(self._write(live), self._feed(live, item))

    async def _feed(self, live: LiveSession, item: bytes | _Commit) -> None:
        """Feed a turn's audio, up to the final commit."""
        while True:
            if isinstance(item, bytes):
                await live.feed(item)
            else:
                self._is_started = True
                await self._send_delta()
                if item.is_final:
                    break
            item = await self._items.get()
        await live.end()
        await asyncio.Event().wait()  # for the text

    async def _read(self) -> None:
        """Pass on what the client sends; what it does wrong ends the turn, whose text follows."""
        try:
            while True:
                await self._items.put(await self._receive())
        except (ClientFault, MessageTooBig) as error:
            self._fault = error
        self._connection.lift_limits()
        await self._items.put(_Commit(is_final=True))
        while True:
            await self._connection.receive()  # until it leaves

    async def _receive(self) -> bytes | _Commit:
        """Wait for audio or a commit."""
        while True:
            message = await self._connection.receive()
            try:
                values = parse_object(message, None)
                match values.get("type"):
                    case "session.update":
                        await self._select(values.get("model"))
                    case "input_audio_buffer.append":
                        if data := await _decode(values.get("audio")):
                            return data
                    case "input_audio_buffer.commit":
                        if not self._is_validated:
                            raise ClientFault(
                                "model_not_validated",
                                "expected session.update with the model first",
                            )
                        return _Commit(values.get("final") is True)
                    case other:
                        raise ClientFault("unknown_event", f"unknown event {other!r:.40}")
            except ClientFault as error:
                self._num_errors += 1
                if self._num_errors > MAX_ERRORS:
                    raise
                await self._send_error(error.message, error.code)

    async def _select(self, model: object) -> None:
        self._is_validated = isinstance(model, str) and is_served(model, self._info)
        if not self._is_validated:
            await self._send_error(f"the model {model!r:.80} is not served", "model_not_found")

    async def _write(self, live: LiveSession) -> None:
        """Take what is said, and send it as deltas once the client wants it; then the whole text.

        Events are always taken: while they wait, nothing is decoded, and no more audio is taken.
        """
        text = ""  # of the segments that are over
        async for event in live.events():
            match event:
                case Partial(settled=said) | Final(text=said):
                    self._text = text + follow(text, said)
                    if isinstance(event, Final):
                        text = self._text
                    await self._send_delta()
        self._is_started = True  # also where the service stops before the client has asked
        await self._send_delta()
        await self._send_done(text, live.duration)

    async def _send_delta(self) -> None:
        delta = self._text[self._num_sent :]
        if self._is_started and delta:
            self._num_sent = len(self._text)
            await self._send({"type": "transcription.delta", "delta": delta})

    async def _send_done(self, text: str, duration: int) -> None:
        # a live session does not count tokens: a word stands for one
        prompt, completion = math.ceil(duration / AUDIO_TOKEN_LENGTH), len(text.split())
        await self._send(
            {
                "type": "transcription.done",
                "text": text,
                "usage": {
                    "prompt_tokens": prompt,
                    "completion_tokens": completion,
                    "total_tokens": prompt + completion,
                },
            }
        )

    async def _send(self, message: dict[str, Any]) -> None:
        await self._connection.send(json.dumps(message, ensure_ascii=False, allow_nan=False))

    async def _send_error(self, message: str, code: str) -> None:
        await self._send({"type": "error", "error": message, "code": code})


async def _decode(audio: object) -> bytes:
    try:
        return await base64_audio.decode(audio)
    except ValueError:
        raise ClientFault("invalid_audio", "audio: expected base64") from None
