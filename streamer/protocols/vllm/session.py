"""One client of vLLM's realtime protocol, at OpenAI's address. docs/vllm-realtime.md specifies it.

Audio is transcribed as it comes. Its text is sent from the first commit on; the final one ends it.
"""

from __future__ import annotations

import asyncio
import json
import math
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
from streamer.transport.connection import MAX_ERRORS, Connection, Overdue, race
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
        self._started = asyncio.Event()  # the client wants text
        self._overdue: Overdue | None = None  # why no more audio is taken
        self._num_errors = 0

    async def run(self) -> None:
        await self._select(self._first.get("model"))
        while True:
            await self._transcribe()
            if self._overdue is not None:
                raise self._overdue

    async def fail(self, fault: Fault) -> None:
        code = ERROR_CODES.get(fault.code, fault.code)
        await self._send_error(fault.message, code)
        await self._connection.close(fault.close_code, code)

    async def _transcribe(self) -> None:
        """Wait for audio, and transcribe it up to the final commit."""
        self._started.clear()
        data = await self._receive()
        if data is None:
            await self._send_done("", 0)
            return
        audio_format, settings = AudioFormat("pcm_s16le", SAMPLE_RATE, 1), SessionSettings()
        async with self._service.session(audio_format, settings) as live:
            await race(self._write(live), self._read(live, data))

    async def _read(self, live: LiveSession, data: bytes | None) -> None:
        """Feed the first audio and all that follows; the final commit only ends it."""
        is_ended = False
        while True:
            if data is None:
                is_ended = True
                await live.end()
            elif not is_ended:
                await live.feed(data)
            data = await self._receive()

    async def _receive(self) -> bytes | None:
        """Wait for audio; None is the final commit, or the end of the client's time."""
        while True:
            try:
                message = await self._connection.receive()
            except Overdue as error:
                # what was said is still delivered, before the error and the close
                self._overdue = error
                self._connection.lift_limits()
                self._started.set()
                return None
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
                        self._started.set()
                        if values.get("final") is True:
                            return None
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
        """Send what settles as deltas, then the whole text."""
        text = ""  # of the segments that are over
        sent = 0  # characters of it, and of the open segment
        async for event in live.events():
            await self._started.wait()
            match event:
                case Partial(settled=said) | Final(text=said):
                    whole = text + follow(text, said)
                    if len(whole) > sent:
                        await self._send({"type": "transcription.delta", "delta": whole[sent:]})
                        sent = len(whole)
                    if isinstance(event, Final):
                        text = whole
        await self._send_done(text, live.duration)

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
