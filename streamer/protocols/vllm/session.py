"""One client of vLLM's realtime protocol, at OpenAI's address. docs/vllm-realtime.md specifies it.

Sound is transcribed as it comes, told of from the first commit on, and done with the final one.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import logging
import math
from typing import Any

from engine.api import SAMPLE_RATE, EngineError, ModelInfo
from streamer import wire
from streamer.audio.pcm import AudioFormat
from streamer.protocols.model_names import is_served
from streamer.service import Service
from streamer.session.live import LiveSession
from streamer.transcription.events import Final, Partial
from streamer.transcription.settings import SessionSettings
from streamer.transcription.word import follow
from streamer.transport.connection import (
    MAX_ERRORS,
    Connection,
    Disconnected,
    MessageTooBig,
    SlowReader,
    race,
)
from streamer.wire import ClientFault, parse_object

logger = logging.getLogger(__name__)

AUDIO_TOKEN = SAMPLE_RATE * 2 // 25  # samples; Voxtral's 12.5 audio tokens a second


class VllmSession:
    """Serves transcriptions one after the other, for as long as the client stays."""

    def __init__(self, service: Service, connection: Connection, info: ModelInfo) -> None:
        self._service = service
        self._connection = connection
        self._info = info
        self._is_validated = False  # the client named the model
        self._started = asyncio.Event()  # the client wants to be told
        self._num_errors = 0

    async def run(self, message: dict[str, Any]) -> None:
        """Serve the client from its first message on; never raise for what it does."""
        try:
            await self._select(message.get("model"))
            while True:
                await self._transcribe()
        except Disconnected:
            logger.debug("vllm: the client is gone")
        except SlowReader:
            await self._connection.close(wire.CLOSE_PROTOCOL_ERROR, "slow reader")
        except MessageTooBig as error:
            await self._fail(wire.CLOSE_TOO_BIG, str(error), "invalid_event")
        except ClientFault as error:
            await self._fail(wire.CLOSE_PROTOCOL_ERROR, error.message, error.code)
        except EngineError as error:
            await self._fail(wire.CLOSE_BUSY, str(error), "processing_error")
        except Exception:
            logger.exception("vllm session failed")
            await self._fail(wire.CLOSE_INTERNAL, "internal error", "processing_error")

    async def _transcribe(self) -> None:
        """Wait for sound, transcribe it to the final commit."""
        self._started.clear()
        data = await self._receive()
        if data is None:
            await self._say_done("", 0)
            return
        audio_format, settings = AudioFormat("pcm_s16le", SAMPLE_RATE, 1), SessionSettings()
        async with self._service.session(audio_format, settings) as live:
            await race(self._write(live), self._read(live, data))

    async def _read(self, live: LiveSession, data: bytes | None) -> None:
        """StepInput the first sound and all that follows; the final commit only ends it."""
        is_ended = False
        while True:
            if data is None:
                is_ended = True
                await live.end()
            elif not is_ended:
                try:
                    await live.feed(data)
                except ValueError as error:  # a WAV header that contradicts the format
                    raise ClientFault("invalid_audio", str(error)) from None
            data = await self._receive()

    async def _receive(self) -> bytes | None:
        """Wait for sound; None is the final commit."""
        while True:
            try:
                async with asyncio.timeout(self._service.config.idle_timeout_s):
                    values = parse_object(await self._connection.receive(), None)
                match values.get("type"):
                    case "session.update":
                        await self._select(values.get("model"))
                    case "input_audio_buffer.append":
                        if data := _decode(values.get("audio")):
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
            except TimeoutError:
                raise ClientFault("idle", "expected an event, got none for too long") from None
            except ClientFault as error:
                self._num_errors += 1
                if self._num_errors > MAX_ERRORS:
                    raise
                await self._say_error(error.message, error.code)

    async def _select(self, model: object) -> None:
        self._is_validated = isinstance(model, str) and is_served(model, self._info)
        if not self._is_validated:
            await self._say_error(f"the model {model!r:.80} is not served", "model_not_found")

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
                        await self._say({"type": "transcription.delta", "delta": whole[sent:]})
                        sent = len(whole)
                    if isinstance(event, Final):
                        text = whole
        await self._say_done(text, live.duration)

    async def _say_done(self, text: str, duration: int) -> None:
        # a live session does not count tokens: a word stands for one
        prompt, completion = math.ceil(duration / AUDIO_TOKEN), len(text.split())
        await self._say(
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

    async def _say(self, message: dict[str, Any]) -> None:
        await self._connection.send(json.dumps(message, ensure_ascii=False, allow_nan=False))

    async def _say_error(self, message: str, code: str) -> None:
        await self._say({"type": "error", "error": message, "code": code})

    async def _fail(self, close_code: int, message: str, code: str) -> None:
        try:
            await self._say_error(message, code)
            await self._connection.close(close_code, code)
        except (Disconnected, SlowReader):
            logger.debug("vllm: gone before it could be told %s", code)


def _decode(audio: object) -> bytes:
    try:
        if not isinstance(audio, str):
            raise ValueError
        return base64.b64decode(audio, validate=True)
    except (binascii.Error, ValueError):
        raise ClientFault("invalid_audio", "audio: expected base64") from None
